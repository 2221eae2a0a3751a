"""The border between the server and whoever answers: a request goes in, parts of an answer come out."""

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
    """Status and headers. `kind` says in a word what is being answered, for people."""

    status: int
    headers: dict[str, str] = {}
    kind: str = ""


class Body(msgspec.Struct, frozen=True):
    """A piece of the body, sent at once."""

    data: bytes


class Wait(msgspec.Struct, frozen=True):
    """Nothing is sent for so many seconds."""

    seconds: float


class Stall(msgspec.Struct, frozen=True):
    """Nothing more is ever sent: until the client goes away or the gateway closes."""


class Cut(msgspec.Struct, frozen=True):
    """The connection is reset here, in the middle of the answer."""


Part = Head | Body | Wait | Stall | Cut


class UpstreamFault(Exception):
    """The way to whoever answers is broken: no connection, a TLS error, an answer that was cut.

    `kind` is one of dns, connect, proxy, tls, cut, protocol; `gateway` is a mistake of our own.
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
    """A request that a replay has no answer for."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@runtime_checkable
class Upstream(Protocol):
    """Who answers. One `Head` comes before the first `Body`; the end of the iteration ends the answer.

    Raises `UpstreamFault` where the answer cannot be had, or not to its end.
    """

    def answer(self, request: Request) -> AsyncIterator[Part]: ...


@asynccontextmanager
async def closing(parts: AsyncIterator[Part]) -> AsyncIterator[AsyncIterator[Part]]:
    """End the answer when the block is left, not when its generator is collected: upstream goes on until then."""
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()
