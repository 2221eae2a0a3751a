"""The shell tools of one turn, told to the warm process: it knows by them which processes are whose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminids.events.from_acp import AcpTranslator
from geminids.events.from_acp_journal import WarmJournalTranslator
from geminids.run.warm.seat import Seat

if TYPE_CHECKING:
    import psutil

__all__ = ["OwnShells"]


class OwnShells:
    """Which of the turn's shells run, by what the updates and the journal tell."""

    def __init__(self, seat: Seat, updates: AcpTranslator, books: WarmJournalTranslator) -> None:
        self._seat = seat
        self._updates = updates
        self._books = books
        self._open: dict[str, None] = {}

    def began(self, call_id: str, *, now: bool = False) -> None:
        """A shell begins; `now` where it has waited for our word."""
        self._open[call_id] = None
        self._seat.process.shells.began(self._seat.session_id, call_id, now=now)

    def allowed(self, call_id: str) -> None:
        """A shell that has waited for our word begins."""
        self.began(call_id, now=True)

    def look(self) -> None:
        """See which have ended, and which groups have become known."""
        shells, session_id = self._seat.process.shells, self._seat.session_id
        for group in self._books.groups:
            shells.group(session_id, group)
        self._books.groups.clear()
        for call_id in [one for one in self._open if not self._updates.is_open(one)]:
            del self._open[call_id]
            shells.ended(session_id, call_id)

    @property
    def since(self) -> float | None:
        """When the first one that still runs has begun."""
        return self._seat.process.shells.running_since(self._seat.session_id)

    def born_since(self, since: float) -> list[psutil.Process]:
        """The processes of this chat that were born since then."""
        return self._seat.process.shells.of(self._seat.session_id, since)

    def pids(self) -> set[int]:
        """The processes that are surely of this chat's tools; asked for in another thread."""
        return {process.pid for process in self._seat.process.shells.of(self._seat.session_id)}
