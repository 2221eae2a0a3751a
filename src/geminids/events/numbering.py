"""The sequence number, attempt and turn that all event sources of a run share."""

from __future__ import annotations

import time

from geminids.events.model import Level, Notice, Retry, SessionStart
from geminids.events.stall import Stall

__all__ = ["EventNumbers"]


class EventNumbers:
    """The next sequence number, the attempt and the turn. Translators use it; `RunRecorder` extends it."""

    def __init__(self) -> None:
        self.seq = 0
        self.attempt = 1
        self.turn = 1
        self.has_gateway = False
        """Whether the gateway reports tokens and retries. If so, no other source does."""

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
        """Make a notice with the next number and the current time. The caller emits it."""
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
