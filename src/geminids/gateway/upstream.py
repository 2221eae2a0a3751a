"""The interface of an upstream: a request goes in, parts of an answer come out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

import msgspec

from geminids.gateway.request import Request

__all__ = [
    "Body",
    "Cut",
    "Head",
    "Mismatch",
    "Part",
    "SignInError",
    "Stall",
    "Upstream",
    "UpstreamFault",
    "Wait",
    "closing",
]


class Head(msgspec.Struct, frozen=True):
    """Status and headers. `kind` describes the answer in a word or two, for people."""

    status: int
    headers: dict[str, str] = {}
    kind: str = ""


class Body(msgspec.Struct, frozen=True):
    """A piece of the body. It is sent immediately."""

    data: bytes


class Wait(msgspec.Struct, frozen=True):
    """Send nothing for this many seconds."""

    seconds: float


class Stall(msgspec.Struct, frozen=True):
    """Send nothing more, until the client disconnects or the gateway closes."""


class Cut(msgspec.Struct, frozen=True):
    """Reset the connection here, in the middle of the answer."""


Part = Head | Body | Wait | Stall | Cut


class UpstreamFault(Exception):
    """The upstream cannot be reached, or its answer broke off: no connection, a TLS error, an
    answer that was cut.

    `kind` is one of dns, connect, proxy, tls, cut, protocol; `gateway` is an error in the gateway
    itself.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class SignInError(Exception):
    """The gateway cannot sign in. The CLI gets `status` and `message` as the API's answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Mismatch(Exception):
    """The cassette of a replay has no answer for a request."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@runtime_checkable
class Upstream(Protocol):
    """Answers requests. It yields one `Head` before the first `Body`; the end of the iteration ends
    the answer.

    Raises `UpstreamFault` if there is no answer, or if it breaks off.
    """

    def answer(self, request: Request) -> AsyncIterator[Part]: ...


@asynccontextmanager
async def closing(parts: AsyncIterator[Part]) -> AsyncIterator[AsyncIterator[Part]]:
    """Close the answer when the block is left. Otherwise the upstream would go on until the garbage
    collector runs."""
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()
