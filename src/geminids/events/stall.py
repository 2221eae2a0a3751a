"""What an idle run waits for, as data. It accompanies the text of a `stall` notice."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Stall", "StallCause", "StallProcess"]

StallCause = Literal["permission", "tool", "api", "retry", "held", "idle", "busy", "stopped"]


class StallProcess(msgspec.Struct, frozen=True):
    """A process that a tool started."""

    pid: int
    command: str


class Stall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why the run emits nothing, and for how many seconds. Unknown fields are None.

    `permission`: a permission request for `tool` has no answer yet. `tool`: `tool` runs; for a shell,
    with `command`, `pid`, `cpu` (percent of a core, including child processes) and the first
    `children` of `child_count`. `api`: request `request` to `model` has no answer, or its answer
    paused. `retry`: attempt `attempt` of `of` failed with `http_status`; the next one starts in about
    `next_s`. `held`: the gateway sends the request in `next_s`. `idle`: the CLI does nothing.
    `busy`: the CLI uses `cpu`. `stopped`: SIGSTOP stopped the CLI; SIGCONT continues it.
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
