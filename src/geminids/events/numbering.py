"""Count the events, the attempts and the turns of a run. All sources of events of the run share
these numbers.
"""

from __future__ import annotations

import time

from geminids.events.model import Level, Notice, Retry, SessionStart
from geminids.events.stall import Stall

__all__ = ["EventNumbers"]


class EventNumbers:
    """The numbers for new events of a run: the next sequence number, the current attempt and the
    current turn.

    The translators, which convert the CLI's output into events, take their numbers from this
    object. `RunRecorder` extends the class.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.attempt = 1
        self.turn = 1
        self.has_gateway = False
        """Whether the gateway reports the tokens and the retries of the run. If so, other sources
        do not report them."""

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
        wait_reason: str | None = None,
        tools: tuple[str, ...] | None = None,
    ) -> Notice:
        """Create a notice with the next sequence number and the current time. The notice is
        returned but not emitted; the caller must emit it. The parameters are the fields of
        `Notice`.
        """
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
            wait_reason=wait_reason,
            tools=tools,
        )
