"""What is known of a silent run in a moment, and whether it still waits for the same thing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import PermissionAsked, ToolStarted
from geminids.gateway.messages import InFlightRequest
from geminids.gemini.protocol.stderr import Remark
from geminids.options import Options
from geminids.run.gateway_events import GatewayEvents

if TYPE_CHECKING:
    from geminids.run.stall.processes import Look

__all__ = ["SHELL", "Failed", "Moment", "Situation", "Span", "key_of", "needs_look", "situation_of"]

# What the CLI does for a model that was named; `auto` is tried three times, and then another model.
_ATTEMPTS = 10
_TOO_MANY, _CLOSED, _SERVER = 429, 499, 500


def situation_of(
    options: Options,
    pid: int,
    *,
    tools: tuple[ToolStarted, ...],
    gateway: GatewayEvents | None,
    retried: tuple[Remark, float] | None,
    spoke_at: float,
    permission: tuple[PermissionAsked, float] | None = None,
    own: Callable[[], Collection[int]] | None = None,
) -> Situation:
    """The situation; a retry that stderr told of counts until the CLI has spoken on stdout."""
    attempts = _attempts(options)
    failed = _by_stderr(retried, spoke_at) if gateway is None else _by_gateway(gateway)
    tried = failed.attempt if failed is not None else None
    if failed is not None and not (failed.is_awaited(time.monotonic()) and _is_tried(failed, attempts)):
        failed = None
    return Situation(
        pid=pid,
        permission=permission,
        tools=tools,
        gateway=gateway is not None,
        requests=() if gateway is None else tuple(gateway.in_flight),
        failed=failed,
        tried=tried,
        attempts=attempts,
        servers=tuple((name, _words(one.command, one.args)) for name, one in options.mcp_servers.items()),
        own=own,
    )


def _by_stderr(retried: tuple[Remark, float] | None, spoke_at: float) -> Failed | None:
    if retried is None or retried[1] < spoke_at:
        return None
    remark, at = retried
    return Failed(remark.attempt, remark.http_status, at, remark.next_s, is_exact=remark.next_s is not None)


def _by_gateway(gateway: GatewayEvents) -> Failed | None:
    if gateway.failed is None:
        return None
    told, at = gateway.failed
    status = told.status if told.status is not None and told.status >= 400 else None
    # The CLI waits at least as long as it would have by itself.
    wait = None if told.retry_after is None else max(told.retry_after, usual_wait(told.attempt))
    held = told.error if told.held else None
    return Failed(told.attempt, status, at, wait, told.body, held=held)


def _is_tried(failed: Failed, attempts: int | None) -> bool:
    """Whether the CLI tries again after this: not for a request that is wrong, nor without end."""
    status = failed.http_status
    again = status is None or status in (_TOO_MANY, _CLOSED) or status >= _SERVER
    return again and (attempts is None or failed.attempt is None or failed.attempt < attempts)


def _attempts(options: Options) -> int | None:
    if options.max_attempts is not None:
        return options.max_attempts
    return None if options.model in (None, "auto") else _ATTEMPTS


def _words(command: str | None, args: tuple[str, ...]) -> tuple[str, ...]:
    return () if command is None else (command, *args)


SHELL = "run_shell_command"
# The CLI's own back-off (core/src/utils/retry.ts): 5 s, doubled with each attempt up to 30 s, give or take 30 %.
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 30.0
_GIVE_OR_TAKE = 0.3
# What a CLI needs to send a request when its time has come, on a busy machine.
_SENDING = 2.0


class Failed(msgspec.Struct, frozen=True):
    """An attempt that has failed and is followed by another: which, when (monotonic), and the wait that was named.

    `is_exact`: the CLI itself has named it. `held` is set where it has not left: what the gateway said to the CLI.
    """

    attempt: int | None
    http_status: int | None
    at: float
    wait: float | None = None
    body: int | None = None
    is_exact: bool = False
    held: str | None = None

    @property
    def whole_wait(self) -> float:
        return usual_wait(self.attempt) if self.wait is None else self.wait

    def next_in(self, now: float) -> float:
        """Seconds until the CLI sends the next one, as far as anybody knows; negative where it should be sent."""
        return self.whole_wait - (now - self.at)

    def is_awaited(self, now: float) -> bool:
        """Whether the next one may still come: after this, the CLI has given up, or hangs."""
        spread = 0.0 if self.is_exact else self.whole_wait * _GIVE_OR_TAKE
        return self.next_in(now) > -(spread + _SENDING)


def usual_wait(attempt: int | None) -> float:
    """How long the CLI waits after this attempt where nobody has named a time; where one is named, not less."""
    return float(min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (min(attempt or 1, 10) - 1)))


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane knows of itself now. `gateway`: its requests are seen, and `requests` are those under way."""

    pid: int | None = None
    permission: tuple[PermissionAsked, float] | None = None
    tools: tuple[ToolStarted, ...] = ()
    gateway: bool = False
    requests: tuple[InFlightRequest, ...] = ()
    failed: Failed | None = None
    """The attempt after which another one is awaited."""
    tried: int | None = None
    """The attempt that failed last, also where the next one should be on its way."""
    attempts: int | None = None
    """How many attempts a request has."""
    servers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """MCP servers: their names, and the words of their command."""
    own: Callable[[], Collection[int]] | None = None
    """Where other chats share the process: the pids that are surely of this one's tools."""

    @property
    def shells(self) -> tuple[ToolStarted, ...]:
        return tuple(tool for tool in self.tools if tool.name == SHELL)


class Span(msgspec.Struct, frozen=True):
    """Since when it has been silent, and what time it is: by the monotonic clock, and by the wall's."""

    silent: float
    now: float
    wall: float

    @property
    def seconds(self) -> float:
        return self.now - self.silent


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """All that a reason is made of.

    `before` and `look` are two looks at the processes, `own` the pids that are surely this chat's where it shares
    them; `allowed` says when a tool was last seen to wait for a yes (Unix); `clean` takes secrets out of a text.
    """

    situation: Situation
    span: Span
    clean: Callable[[str], str]
    before: Look | None = None
    look: Look | None = None
    own: Collection[int] | None = None
    allowed: Mapping[str, float] = {}

    def began(self, tool: ToolStarted) -> float:
        """When a tool can have begun to run at the earliest (Unix)."""
        return max(tool.at / 1000, self.allowed.get(tool.id, 0.0))


def key_of(situation: Situation) -> Hashable:
    """The same for as long as the reason is the same; cheap, since it is asked for every second."""
    if situation.permission is not None:
        return "permission", situation.permission[0].id
    if situation.shells:
        return "tool", situation.shells[0].id
    if situation.requests:
        # A request that is tried again is one reason, whichever attempt it is at.
        return "api", situation.requests[0].body
    if situation.gateway and situation.failed is not None:
        return "api", situation.failed.body
    return ("tool", situation.tools[0].id) if situation.tools else "cli"


def needs_look(situation: Situation) -> bool:
    """Whether the processes say more than is known already: a question is one, whatever they do."""
    return situation.permission is None
