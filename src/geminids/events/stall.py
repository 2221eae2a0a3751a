"""Structured data about a stall: a long time in which a run emits no events. A notice with the code
`stall` contains this data in addition to its text.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Stall", "StallCause", "StallProcess"]

StallCause = Literal["permission", "tool", "api", "retry", "held", "idle", "busy", "stopped"]


class StallProcess(msgspec.Struct, frozen=True):
    """A process that a running tool started. The details of a stall (a long time without events)
    list such processes.
    """

    pid: int
    command: str


class Stall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run has emitted no events for `since_s` seconds. `cause` is the reason. The other
    fields describe it; a field that does not apply or is unknown is None.

    The values of `cause`:

    - `permission`: a permission request for `tool` has no answer yet.
    - `tool`: `tool` is running. For a shell command, these fields are set too: `command`, `pid`,
      `cpu` (percent of a core, including child processes), `child_count` (the number of child
      processes) and `children` (the first of them).
    - `api`: request number `request` to `model` has no answer yet, or its answer has paused.
    - `retry`: a request failed with `http_status`. This was its attempt number `attempt`, of at
      most `of` attempts. The next attempt starts in about `next_s` seconds.
    - `held`: the gateway delays a request, and will send it in `next_s` seconds.
    - `idle`: the CLI does nothing.
    - `busy`: the CLI uses `cpu` percent of a core.
    - `stopped`: the CLI was stopped by SIGSTOP. SIGCONT continues it.
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
