"""The numbers that all events of a run share, whichever source they come from."""

from __future__ import annotations

import time

from geminids.events.model import Level, Notice, Retry, SessionStart
from geminids.events.stall import Stall

__all__ = ["EventNumbers"]


class EventNumbers:
    """The next sequence number, the attempt and the turn. Translators take numbers here; `RunRecorder` extends it."""

    def __init__(self) -> None:
        self.seq = 0
        self.attempt = 1
        self.turn = 1
        self.has_gateway = False
        """The gateway reports tokens and retries, so no other source does."""

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
        """Make a notice with the next number and the time of now. It is not emitted."""
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
