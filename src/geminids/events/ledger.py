"""The numbering that all events of a run share, whichever source they come from."""

from __future__ import annotations

import time

from geminids.events.model import Level, Notice, Retry, SessionStart
from geminids.events.stall import Stall

__all__ = ["Ledger"]


class Ledger:
    """The next number, the attempt and the turn.

    `metered`: the gateway reports tokens and retries, so no other source does. `stopped` is the beginning of the
    gateway's stop message; used to recognise it when the CLI repeats it. `stall` is what the run waited for when its
    silence ended it.
    """

    __slots__ = ("attempt", "metered", "seq", "stall", "stopped", "turn")

    def __init__(self) -> None:
        self.metered = False
        self.stopped: str | None = None
        self.stall: Stall | None = None
        self.seq = 0
        self.attempt = 1
        self.turn = 1

    def next(self) -> int:
        seq = self.seq
        self.seq = seq + 1
        return seq

    def notice(
        self,
        level: Level,
        code: str,
        message: str,
        retry: Retry | None = None,
        stall: Stall | None = None,
        *,
        request: int | None = None,
        session: SessionStart | None = None,
        wait_s: float | None = None,
    ) -> Notice:
        """A notice of now."""
        return Notice(
            at=int(time.time() * 1000),
            seq=self.next(),
            attempt=self.attempt,
            turn=self.turn,
            level=level,
            code=code,
            message=message,
            retry=retry,
            stall=stall,
            request=request,
            session=session,
            wait_s=wait_s,
        )
