"""The numbering that all events of a run share, whichever pipe they come from."""

from __future__ import annotations

import time

from geminids.events.model import Level, Notice, Retry, TokensUsed
from geminids.events.stall import Stall

__all__ = ["Ledger", "without_blanks"]

_PIECE = 65_536


class Ledger:
    """The next number, the attempt and the turn.

    `aside` is set where the gateway tells tokens and retries: what the journal knows of tokens is then no event, and
    is kept there to be compared. `stopped` is how it begins to say why it has ended the run: the CLI repeats that.
    `uncounted` are answers that were cut before all their tokens were told, or may have been.
    `written` is how much the journal has of what the model has said, in characters without blanks.
    `stall` is what the run waited for where its silence has ended it.
    """

    __slots__ = ("aside", "attempt", "seq", "stall", "stopped", "turn", "uncounted", "written")

    def __init__(self) -> None:
        self.aside: list[TokensUsed] | None = None
        self.stopped: str | None = None
        self.stall: Stall | None = None
        self.uncounted = 0
        self.written = 0
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
        )


def without_blanks(text: str) -> int:
    """How long a text is without its blanks: the CLI trims what it writes down.

    >>> without_blanks(" a b\\n")
    2
    """
    # Piece by piece: a text of megabytes is not copied for it.
    pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
    return sum(len(word) for piece in pieces for word in piece.split())
