"""What the gateway reports to a run about its requests, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from geminids.spending.tokens import Counts


__all__ = [
    "Answered",
    "Finding",
    "FindingCode",
    "Halt",
    "HaltKind",
    "Remark",
    "RequestRole",
    "Tell",
    "Told",
    "UnderWay",
    "Waiting",
]

RequestRole = Literal[
    "main", "router", "compression", "loop_check", "search", "fetch", "subagent", "nested", "other"
]
HaltKind = Literal["over_budget", "model", "mismatch", "gone", "unkept"]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A request came to its end, well or not.

    `attempt` counts how often the same request was sent after failures; `body` is a digest of what was asked, the same
    for each of them. `repeat`: it repeats an earlier request. `turn` counts the turns of the
    main conversation that were asked for up to then. `counts` is None if the answer ended without final usage.
    `fault` says what went wrong between gateway and API; `whole` is false if the answer was cut, by either side. `sent`
    is false if the API never got it: no connection, no sign-in, or held back by us.
    """

    number: int
    at: int
    model: str | None
    served: str | None
    role: RequestRole
    attempt: int
    body: int
    repeat: bool
    turn: int
    status: int | None
    counts: Counts | None
    finish: str | None
    calls: int
    thoughts: int
    waited_ms: int
    first_byte_ms: int | None
    duration_ms: int
    whole: bool
    sent: bool = True
    held: bool = False
    """It came too early for `requests_per_minute`, and we answered it with 429 ourselves."""
    fault: str | None = None
    error: str | None = None
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        return self.whole and self.status is not None and self.status < 400


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A request is held back for so many seconds, and why."""

    number: int
    seconds: float
    reason: str


FindingCode = Literal["repeat", "fallback", "loop_recovery", "compression", "discarded"]


class Finding(msgspec.Struct, frozen=True):
    """Something that the CLI did unseen, recognised by its requests. `request` is the number of the request that it is
    about."""

    code: FindingCode
    request: int
    text: str


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the run shall know, and that changes nothing; `code` is its notice's."""

    code: str
    text: str


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """No request of this run goes any further: the run has to end."""

    kind: HaltKind
    message: str
    hint: str


Told = Answered | Waiting | Finding | Remark | Halt
Tell = Callable[[Told], None]


class UnderWay(msgspec.Struct, eq=False):
    """Written by the gateway's thread, one plain value at a time; times are `time.monotonic`.

    `held_until` and `held_why` are set while it is held back, `left` once it is on its way to the API, `first` and
    `last` with the bytes of its answer. `attempt` and `body` are those of `Answered`.
    """

    number: int
    model: str | None
    role: RequestRole
    is_paid: bool
    attempt: int
    body: int
    came: float
    held_until: float | None = None
    held_why: str | None = None
    left: float | None = None
    first: float | None = None
    last: float | None = None
