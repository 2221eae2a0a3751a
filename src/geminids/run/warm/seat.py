"""A session in a warm process, with what outlasts its turns."""

from __future__ import annotations

from pathlib import Path

import msgspec

from geminids.run.lease import RunLease
from geminids.run.warm.always import Always
from geminids.run.warm.connection import RpcFailed
from geminids.run.warm.process import WarmProcess
from geminids.wire.acp_endings import judge_opening
from geminids.wire.endings import Ending

__all__ = ["Seat", "why_not_open"]


class Seat(msgspec.Struct):
    """Where a chat sits: what was allowed for good, the calls that are known, the file of its journal."""

    process: WarmProcess
    session_id: str
    cwd: str
    always: Always
    known: set[str]
    lease: RunLease
    journal: Path | None = None
    broken: bool = False
    """Whether the session can no longer be used: the CLI did not stop when it was told to."""

    @property
    def is_usable(self) -> bool:
        return self.process.alive and not self.broken

    def find_journal(self, home: str) -> Path | None:
        """The file of the session's journal; looked for until it is there, and then known."""
        from geminids.sessions.listing import journal_of

        if self.journal is None:
            self.journal = journal_of(self.session_id, self.cwd, home=home, environ=self.process.plan.env)
        return self.journal


def why_not_open(error: BaseException, stderr: str, exit_code: int | None) -> Ending:
    """What became of it, by what the CLI answered or left behind."""
    if isinstance(error, RpcFailed):
        found = error.error
        return judge_opening(found.code, found.message, found.details, stderr, exit_code)
    message = (
        "the CLI took too long to open a session" if isinstance(error, TimeoutError) else str(error) or None
    )
    return judge_opening(None, message, None, stderr, exit_code)
