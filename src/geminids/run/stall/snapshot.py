"""A snapshot of what a silent run does, and a key that changes when it waits for something else."""

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
    from geminids.run.stall.processes import ProcessSnapshot

__all__ = ["SHELL", "Failed", "Situation", "Span", "StallSnapshot", "key_of", "needs_look", "situation_of"]

# The CLI's attempts per request for a named model. With `auto` it tries three times, then another
# model.
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
    """Build the situation. A retry that stderr reported counts until the next output on stdout."""
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
        servers=tuple(
            (name, _words(server.command, server.args)) for name, server in options.mcp_servers.items()
        ),
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
    answer, at = gateway.failed
    status = answer.status if answer.status is not None and answer.status >= 400 else None
    # The CLI waits at least as long as its own back-off.
    wait = None if answer.retry_after is None else max(answer.retry_after, usual_wait(answer.attempt))
    held = answer.error if answer.held else None
    return Failed(answer.attempt, status, at, wait, answer.body, held=held)


def _is_tried(failed: Failed, attempts: int | None) -> bool:
    """Whether the CLI tries again: not after a client error, nor after its last attempt."""
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
# The CLI's own back-off (core/src/utils/retry.ts): 5 s, doubled with each attempt up to 30 s, give
# or take 30 %.
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 30.0
_GIVE_OR_TAKE = 0.3
# How long the CLI may take to send a request after its wait, on a busy machine.
_SENDING = 2.0


class Failed(msgspec.Struct, frozen=True):
    """A failed attempt that the CLI repeats: number, time (monotonic), requested wait.

    `is_exact`: the CLI itself reported the wait. `held`: the gateway did not send the request, and
    answered this.
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
        """Expected seconds until the CLI sends the next attempt; negative if it is overdue."""
        return self.whole_wait - (now - self.at)

    def is_awaited(self, now: float) -> bool:
        """Whether the next attempt may still come. If not, the CLI has given up or hangs."""
        spread = 0.0 if self.is_exact else self.whole_wait * _GIVE_OR_TAKE
        return self.next_in(now) > -(spread + _SENDING)


def usual_wait(attempt: int | None) -> float:
    """How long the CLI waits after this attempt, or longer if the API asks for more."""
    return float(min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (min(attempt or 1, 10) - 1)))


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a transport knows about its run now.

    `gateway`: the gateway sees its requests; `requests` are in flight.
    """

    pid: int | None = None
    permission: tuple[PermissionAsked, float] | None = None
    tools: tuple[ToolStarted, ...] = ()
    gateway: bool = False
    requests: tuple[InFlightRequest, ...] = ()
    failed: Failed | None = None
    """The failed attempt, while the next one is awaited."""
    tried: int | None = None
    """The number of the last failed attempt, also after the next one should have been sent."""
    attempts: int | None = None
    """The number of attempts per request."""
    servers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """MCP servers: names and command lines."""
    own: Callable[[], Collection[int]] | None = None
    """If other chats share the process: returns the pids of this chat's tools."""

    @property
    def shells(self) -> tuple[ToolStarted, ...]:
        return tuple(tool for tool in self.tools if tool.name == SHELL)


class Span(msgspec.Struct, frozen=True):
    """The silence and the current time: monotonic (`silent`, `now`) and Unix (`wall`)."""

    silent: float
    now: float
    wall: float

    @property
    def seconds(self) -> float:
        return self.now - self.silent


class StallSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an explanation is made from.

    `before` and `look` are two inspections of the processes. `own` are the pids that certainly
    belong to this chat, if chats share the CLI. `allowed` has the last time (Unix) at which a tool
    waited for permission. `clean` redacts.
    """

    situation: Situation
    span: Span
    clean: Callable[[str], str]
    before: ProcessSnapshot | None = None
    look: ProcessSnapshot | None = None
    own: Collection[int] | None = None
    allowed: Mapping[str, float] = {}

    def began(self, tool: ToolStarted) -> float:
        """The earliest time at which a tool can have started (Unix)."""
        return max(tool.at / 1000, self.allowed.get(tool.id, 0.0))


def key_of(situation: Situation) -> Hashable:
    """Key of the current wait.

    Changes when the run starts to wait for something else. Called every second.
    """
    if situation.permission is not None:
        return "permission", situation.permission[0].id
    if situation.shells:
        return "tool", situation.shells[0].id
    if situation.requests:
        # All attempts of a request have the same key.
        return "api", situation.requests[0].body
    if situation.gateway and situation.failed is not None:
        return "api", situation.failed.body
    return ("tool", situation.tools[0].id) if situation.tools else "cli"


def needs_look(situation: Situation) -> bool:
    """Whether inspecting the processes helps: not if the run waits for permission."""
    return situation.permission is None
