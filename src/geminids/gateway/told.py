"""What a gateway tells a run about its requests, as plain values; told in the gateway's own thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

__all__ = ["Answered", "Counts", "Halt", "HaltKind", "Remark", "RequestRole", "Tell", "Told", "Waiting"]

RequestRole = Literal["main", "subagent", "utility"]
HaltKind = Literal["over_budget", "model", "mismatch", "gone", "unkept"]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one request as the API counts them: input includes cached, output excludes thinking."""

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thinking: int | None = None
    tool: int | None = None

    @property
    def total(self) -> int:
        return sum(part or 0 for part in (self.input, self.output, self.thinking, self.tool))


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A request came to its end, well or not.

    `attempt` counts the times that the very same request was sent; `body` is a digest of what was asked, the same for
    each of them. `counts` is None where the answer told no tokens. `fault` says in words what went wrong between
    gateway and API; `whole` is false where the answer was cut, by either side.
    """

    number: int
    at: int
    method: str
    model: str | None
    served: str | None
    role: RequestRole
    attempt: int
    body: int
    status: int | None
    counts: Counts | None
    finish: str | None
    waited_ms: int
    first_byte_ms: int | None
    duration_ms: int
    whole: bool
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


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the run shall know, and that changes nothing; `code` is its notice's."""

    code: str
    text: str


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """No request of this run goes any further: the run has to end."""

    kind: HaltKind
    message: str
    hint: str


Told = Answered | Waiting | Remark | Halt
Tell = Callable[[Told], None]
