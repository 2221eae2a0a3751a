"""A session that could not be opened, as an ending."""

from __future__ import annotations

from geminids.run.warm.connection import RpcFailed
from geminids.wire.acp_endings import judge_opening
from geminids.wire.endings import Ending

__all__ = ["why_not_open"]


def why_not_open(error: BaseException, stderr: str, exit_code: int | None) -> Ending:
    """What became of it, by what the CLI answered or left behind."""
    if isinstance(error, RpcFailed):
        found = error.error
        return judge_opening(found.code, found.message, found.details, stderr, exit_code)
    message = (
        "the CLI took too long to open a session" if isinstance(error, TimeoutError) else str(error) or None
    )
    return judge_opening(None, message, None, stderr, exit_code)
