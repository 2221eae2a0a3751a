"""What a silent run waits for, as a value: beside the words of a `stall` notice, for whoever shows it in a form."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Stall", "StallCause", "StallProcess"]

StallCause = Literal["permission", "tool", "api", "retry", "held", "idle", "busy", "stopped"]


class StallProcess(msgspec.Struct, frozen=True):
    """A process that a tool has started."""

    pid: int
    command: str


class Stall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why nothing is heard, and for how many seconds that has been so; what is not known, or does not apply, is None.

    `permission`: somebody has to answer for `tool`. `tool`: it runs; of a shell `command`, `pid`, `cpu` (percent of a
    core, with its children), and the first `children` of `child_count`.
    `api`: request `request` to `model` has no answer, or no more of it. `retry`: attempt `attempt` of `of` has failed
    with `http_status`, and the next is sent in about `next_s`. `held`: the request may leave in `next_s`. `idle`: the
    CLI does nothing at all; `busy`: it uses `cpu`; `stopped`: a signal has stopped it (SIGSTOP), and SIGCONT lets it
    go on.
    """

    cause: StallCause
    since_s: float
    tool: str | None = None
    pid: int | None = None
    command: str | None = None
    cpu: float | None = None
    children: tuple[StallProcess, ...] = ()
    child_count: int = 0
    request: int | None = None
    model: str | None = None
    attempt: int | None = None
    of: int | None = None
    http_status: int | None = None
    next_s: float | None = None
