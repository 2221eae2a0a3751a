"""What is known of a silent run in a moment, and whether it still waits for the same thing."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import PermissionAsked, ToolStarted

if TYPE_CHECKING:
    from geminids.gateway.under_way import UnderWay

__all__ = ["Failed", "Situation", "Span", "key_of", "needs_look", "usual_wait"]

_SHELL = "run_shell_command"
# The CLI's own back-off (core/src/utils/retry.ts): 5 s, doubled with each attempt up to 30 s, give or take 30 %.
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 30.0


class Failed(msgspec.Struct, frozen=True):
    """An attempt that has failed and is followed by another: which, when (monotonic), and the wait that was named."""

    attempt: int | None
    http_status: int | None
    at: float
    wait: float | None = None
    body: int | None = None

    def next_in(self, now: float) -> float:
        """Seconds until the CLI sends the next one, as far as anybody knows; negative where it should be sent."""
        wait = usual_wait(self.attempt) if self.wait is None else self.wait
        return wait - (now - self.at)


def usual_wait(attempt: int | None) -> float:
    """How long the CLI waits after this attempt where nobody has named a time; where one is named, not less."""
    return float(min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (min(attempt or 1, 10) - 1)))


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane knows of itself now. `gateway`: its requests are seen, and `requests` are those under way."""

    pid: int | None = None
    permission: tuple[PermissionAsked, float] | None = None
    tools: tuple[ToolStarted, ...] = ()
    gateway: bool = False
    requests: tuple[UnderWay, ...] = ()
    failed: Failed | None = None
    attempts: int | None = None
    """How many attempts a request has."""
    servers: tuple[tuple[str, str], ...] = ()
    """MCP servers: their names, and a part of their command line by which their processes are known."""

    @property
    def shell(self) -> ToolStarted | None:
        return next((tool for tool in self.tools if tool.name == _SHELL), None)


class Span(msgspec.Struct, frozen=True):
    """Since when it has been silent, and what time it is: by the monotonic clock, and by the wall's."""

    silent: float
    now: float
    wall: float

    @property
    def seconds(self) -> float:
        return self.now - self.silent


def key_of(situation: Situation) -> Hashable:
    """The same for as long as the reason is the same; cheap, since it is asked for every second."""
    if situation.permission is not None:
        return "permission", situation.permission[0].id
    if (shell := situation.shell) is not None:
        return "tool", shell.id
    if situation.requests:
        # A request that is tried again is one reason, whichever attempt it is at.
        return "api", situation.requests[0].body
    if situation.gateway and situation.failed is not None:
        return "api", situation.failed.body
    return ("tool", situation.tools[0].id) if situation.tools else "cli"


def needs_look(situation: Situation) -> bool:
    """Whether the processes say more than is known already."""
    if situation.permission is not None:
        return False
    if situation.shell is not None:
        return True
    return not situation.requests and not (situation.gateway and situation.failed is not None)
