"""What a lane knows of itself, gathered for the stall watch: the same for every lane."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from geminids.events.model import PermissionAsked, ToolStarted
from geminids.gateway.under_way import HELD
from geminids.options import Options
from geminids.run.overseer import Overseer
from geminids.run.stall.situation import Failed, Situation, usual_wait
from geminids.toolchain.releases import Release
from geminids.toolchain.versions import Version
from geminids.wire.stderr import Remark

__all__ = ["situation_of"]

# What the CLI does for a model that was named; `auto` is tried three times, and then another model.
_ATTEMPTS = 10
_ATTEMPTS_SINCE = (0, 32)
# Up to this release three attempts, and no setting for it; of those between nobody has looked.
_OLD_ATTEMPTS = 3
_OLD_UP_TO = (0, 24)
_TOO_MANY, _CLOSED, _SERVER = 429, 499, 500


def situation_of(
    options: Options,
    pid: int,
    *,
    release: Release,
    tools: tuple[ToolStarted, ...],
    overseer: Overseer | None,
    retried: tuple[Remark, float] | None,
    spoke_at: float,
    permission: tuple[PermissionAsked, float] | None = None,
    own: Callable[[], Collection[int]] | None = None,
) -> Situation:
    """The situation; a retry that stderr told of counts until the CLI has spoken on stdout."""
    attempts = _attempts(options, release)
    failed = _by_stderr(retried, spoke_at) if overseer is None else _by_gateway(overseer)
    tried = failed.attempt if failed is not None else None
    if failed is not None and not (failed.is_awaited(time.monotonic()) and _is_tried(failed, attempts)):
        failed = None
    return Situation(
        pid=pid,
        permission=permission,
        tools=tools,
        gateway=overseer is not None,
        requests=() if overseer is None else tuple(overseer.under_way),
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


def _by_gateway(overseer: Overseer) -> Failed | None:
    if overseer.failed is None:
        return None
    told, at = overseer.failed
    status = told.status if told.status is not None and told.status >= 400 else None
    # The CLI waits at least as long as it would have by itself.
    wait = None if told.retry_after is None else max(told.retry_after, usual_wait(told.attempt))
    held = told.error if told.error is not None and told.error.startswith(HELD) else None
    return Failed(told.attempt, status, at, wait, told.body, held=held)


def _is_tried(failed: Failed, attempts: int | None) -> bool:
    """Whether the CLI tries again after this: not for a request that is wrong, nor without end."""
    status = failed.http_status
    again = status is None or status in (_TOO_MANY, _CLOSED) or status >= _SERVER
    return again and (attempts is None or failed.attempt is None or failed.attempt < attempts)


def _attempts(options: Options, release: Release) -> int | None:
    version = Version.parse(release.version)
    core = version.core[:2] if version is not None else _ATTEMPTS_SINCE
    if core <= _OLD_UP_TO:
        return _OLD_ATTEMPTS
    if options.max_attempts is not None:
        return options.max_attempts
    return None if options.model in (None, "auto") or core < _ATTEMPTS_SINCE else _ATTEMPTS


def _words(command: str | None, args: tuple[str, ...]) -> tuple[str, ...]:
    return () if command is None else (command, *args)
