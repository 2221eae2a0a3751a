"""The interface of an upstream (an object that answers the requests of the CLI), and the types for
the parts of an answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

import msgspec

from geminids.gateway.request import Request

__all__ = [
    "FREE_HEADER",
    "Body",
    "Cut",
    "Hang",
    "Head",
    "Mismatch",
    "Part",
    "SignInError",
    "Upstream",
    "UpstreamFault",
    "Wait",
    "closing",
    "is_free",
    "with_header",
]


FREE_HEADER = "x-geminids-free"
"""A header of an answer that a script or a cassette made, so that it cost nothing. The value is the
name of the answer in the request log: the run, `-` and the number of the request. It is empty if the
answer has no line in the log."""


class Head(msgspec.Struct, frozen=True):
    """The first part of an answer: its HTTP status and headers. `kind` describes the answer in a
    few words, for people.
    """

    status: int
    headers: dict[str, str] = {}
    kind: str = ""


def with_header(head: Head, name: str, value: str) -> Head:
    return msgspec.structs.replace(head, headers={**head.headers, name: value})


class Body(msgspec.Struct, frozen=True):
    """A part of an answer: a piece of its body. The gateway sends it to the client immediately."""

    data: bytes


class Wait(msgspec.Struct, frozen=True):
    """A pause in an answer: the gateway sends nothing for this number of seconds."""

    seconds: float


class Hang(msgspec.Struct, frozen=True):
    """A part of an answer after which nothing more is sent. The gateway waits until the client
    disconnects or the gateway closes.
    """


class Cut(msgspec.Struct, frozen=True):
    """A part that ends an answer too early. The gateway resets the connection immediately, so the
    client gets an incomplete answer.
    """


Part = Head | Body | Wait | Hang | Cut


class UpstreamFault(Exception):
    """Raised if the API cannot be reached, or if its answer is incomplete.

    `kind` says what failed: `dns`, `connect`, `proxy`, `tls`, `protocol` (the answer is not valid
    HTTP), `cut` (the answer ended early), `closed` (the token of the request only keeps the gateway
    open, and cannot be used for requests) or `gateway` (an error in the gateway itself).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class SignInError(Exception):
    """Raised if the gateway cannot sign in to the API. The CLI gets this HTTP `status` and
    `message` as an answer, as if the API had sent them.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Mismatch(Exception):
    """Raised if a request is not in the replayed cassette, a file with recorded answers."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@runtime_checkable
class Upstream(Protocol):
    """Interface of an object that answers the requests of the CLI.

    `answer` yields the parts of the answer: one `Head`, then pieces of the body (`Body`). Between
    them can be parts such as `Wait`. When the iteration ends, the answer is complete.
    `UpstreamFault` is raised if there is no answer, or if the answer is incomplete.
    """

    def answer(self, request: Request) -> AsyncIterator[Part]: ...


def is_free(upstream: Upstream) -> bool:
    """Return whether no model answers the requests, but a script or a cassette."""
    return bool(getattr(upstream, "is_free", False))


@asynccontextmanager
async def closing(parts: AsyncIterator[Part]) -> AsyncIterator[AsyncIterator[Part]]:
    """Close the answer `parts` at the end of the `async with` block. Otherwise an unfinished answer
    would stay open until the garbage collector runs.
    """
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()
