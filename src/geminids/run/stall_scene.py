"""What a lane knows of itself, gathered for the stall watch: the same for every lane."""

from __future__ import annotations

from geminids.events.model import PermissionAsked, ToolStarted
from geminids.options import Options
from geminids.run.overseer import Overseer
from geminids.run.stall_situation import Failed, Situation, usual_wait
from geminids.wire.stderr import Remark

__all__ = ["situation_of"]

# What the CLI does for a model that was named; `auto` is tried three times, and then another model.
_ATTEMPTS = 10


def situation_of(
    options: Options,
    pid: int,
    *,
    tools: tuple[ToolStarted, ...],
    overseer: Overseer | None,
    retried: tuple[Remark, float] | None,
    spoke_at: float,
    permission: tuple[PermissionAsked, float] | None = None,
) -> Situation:
    """The situation; a retry that stderr told of counts until the CLI has spoken on stdout."""
    return Situation(
        pid=pid,
        permission=permission,
        tools=tools,
        gateway=overseer is not None,
        requests=() if overseer is None else tuple(overseer.under_way),
        failed=_by_stderr(retried, spoke_at) if overseer is None else _by_gateway(overseer),
        attempts=_attempts(options),
        servers=tuple((name, _words(one.command, one.args)) for name, one in options.mcp_servers.items()),
    )


def _by_stderr(retried: tuple[Remark, float] | None, spoke_at: float) -> Failed | None:
    if retried is None or retried[1] < spoke_at:
        return None
    remark, at = retried
    return Failed(remark.attempt, remark.http_status, at, remark.next_s)


def _by_gateway(overseer: Overseer) -> Failed | None:
    if overseer.failed is None:
        return None
    told, at = overseer.failed
    status = told.status if told.status is not None and told.status >= 400 else None
    # The CLI waits at least as long as it would have by itself.
    wait = None if told.retry_after is None else max(told.retry_after, usual_wait(told.attempt))
    return Failed(told.attempt, status, at, wait, told.body)


def _attempts(options: Options) -> int | None:
    if options.max_attempts is not None:
        return options.max_attempts
    return None if options.model in (None, "auto") else _ATTEMPTS


def _words(command: str | None, args: tuple[str, ...]) -> str:
    """A part of the command line that is the server's own: its arguments, else the program."""
    return " ".join(args) or command or "\0"
