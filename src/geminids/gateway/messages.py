"""The messages that the gateway sends to a run about its requests."""

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
    "GatewayMessage",
    "Halt",
    "HaltKind",
    "InFlightRequest",
    "OnMessage",
    "Remark",
    "RequestRole",
    "Waiting",
]

RequestRole = Literal[
    "main", "router", "compression", "loop_check", "search", "fetch", "subagent", "nested", "other"
]
HaltKind = Literal["over_budget", "model", "mismatch", "gone", "unwritable"]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A request has ended, successfully or not.

    `attempt` counts the attempts of the same request after failures; `body` is the digest of its
    body, the same for all attempts. `repeat`: it repeats an earlier request. `turn` counts the
    turns of the main conversation up to this request. `counts` is None if the answer ended without
    final usage. `fault` describes an error between the gateway and the API. `whole` is false if
    either side cut the answer off. `sent` is false if the request never reached the API: no
    connection, no sign-in, or stopped by the gateway.
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
    """The gateway itself answered with 429, because the request exceeded `requests_per_minute`."""
    fault: str | None = None
    error: str | None = None
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        return self.whole and self.status is not None and self.status < 400


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway delays a request for `seconds`, for `reason`."""

    number: int
    seconds: float
    reason: str


FindingCode = Literal["repeat", "fallback", "loop_recovery", "compression", "discarded"]


class Finding(msgspec.Struct, frozen=True):
    """Something that the CLI did without reporting it, recognised by its requests. `request` is the
    number of the request that it is about."""

    code: FindingCode
    request: int
    text: str


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Information for the run that changes nothing. `code` is the code of the notice made from
    it."""

    code: str
    text: str


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway sends no further request of this run: the run has to end."""

    kind: HaltKind
    message: str
    hint: str


GatewayMessage = Answered | Waiting | Finding | Remark | Halt
OnMessage = Callable[[GatewayMessage], None]


class InFlightRequest(msgspec.Struct, eq=False):
    """A request that has not ended. Only the gateway's thread writes it; times are
    `time.monotonic`.

    `held_until` and `held_why` are set while the gateway delays it, `left` when it is sent to the
    API, `first` and `last` when bytes of its answer arrive. `attempt` and `body` are those of
    `Answered`.
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
