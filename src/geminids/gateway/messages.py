"""The types of messages that the gateway sends to a run about the run's API requests."""

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
    """A message from the gateway to the run: a request has ended, successfully or not.

    The request: `model` is the requested model, and `served` the model that answered. `role` is
    what the CLI uses the request for. `attempt` is the number of the attempt: 1 for the first one,
    and 1 more after each failure. `body` is a digest of the request's body, which is equal for all
    attempts. `repeat` is true if the request repeats an earlier one. `turn` is the number of turns
    (model requests with their tool calls) of the main conversation so far.

    The answer: `at` is the time of its end in Unix milliseconds. `counts` are the token counts;
    None if the API did not report the total. `finish` is the finish reason. `calls` and `thoughts`
    are the numbers of tool calls and of thoughts in the answer. `fault` describes an error between
    the gateway and the API, such as a broken connection. `whole` is false if the API or the CLI
    ended the answer early. `sent` is false if the request never reached the API: there was no
    connection, the sign-in failed, or the gateway stopped the request. `free_as` is set if a script
    or a cassette answered: the value of `FREE_HEADER`.
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
    free_as: str | None = None
    sent: bool = True
    held: bool = False
    """Whether the gateway itself answered with 429, because the request exceeded
    `requests_per_minute`."""
    fault: str | None = None
    error: str | None = None
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        return self.whole and self.status is not None and self.status < 400


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A message from the gateway to the run: the gateway delays request `number` by this number of
    `seconds`. `reason` says why.
    """

    number: int
    seconds: float
    reason: str


FindingCode = Literal["repeat", "fallback", "loop_recovery", "compression", "discarded"]


class Finding(msgspec.Struct, frozen=True):
    """A message from the gateway to the run: the CLI did something without reporting it, for
    example it discarded an answer. The gateway detected this by comparing requests. `request` is
    the number of the request to which the finding belongs.
    """

    code: FindingCode
    request: int
    text: str


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A message from the gateway that the run emits as a notice with this `code` and `text`. A
    remark does not change what the run does.
    """

    code: str
    text: str


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """A message from the gateway to the run: no more requests of this run will be sent to the API,
    so the run must end. `kind`, `message` and `hint` say why.
    """

    kind: HaltKind
    message: str
    hint: str


GatewayMessage = Answered | Waiting | Finding | Remark | Halt
OnMessage = Callable[[GatewayMessage], None]


class InFlightRequest(msgspec.Struct, eq=False):
    """A request at the gateway that has not ended. Only the gateway's thread changes it. All times
    are values of `time.monotonic`.

    `came` is the time when the request arrived. While the gateway delays the request, `held_until`
    is the end of the delay, and `held_why` its reason. `left` is the time when the request was sent
    to the API. `first` and `last` are the times of the first and the latest bytes of the answer. A
    time is None until its event happens.

    `attempt` is the number of the attempt: 1 for the first one, and 1 more after each failure.
    `body` is a digest of the request's body.
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
