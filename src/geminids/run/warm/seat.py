"""A session in a warm process, with what outlasts its turns."""

from __future__ import annotations

from pathlib import Path

import msgspec

from geminids.run.lease import RunLease
from geminids.run.warm.always import Always
from geminids.run.warm.process import WarmProcess

__all__ = ["Seat"]


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
