"""The budget of a run whose requests no gateway sees: counted by its events, as they become known."""

from __future__ import annotations

from collections.abc import Sequence

from geminids.events.model import Event, TokensUsed, ToolStarted
from geminids.gateway.purse import Purse
from geminids.gateway.told import Counts, Halt

__all__ = ["Allowance"]


class Allowance:
    """Hears the events of one run or turn; `halted` says why it has to end, once there is no room for more.

    A request is known when it has been answered. So the run is ended when the budget is used up and another request
    is sure to come: the model has called a tool, or it was a subagent that asked. An answer that is the last is let
    through, as the gateway does it; where it was not the last after all, the run ends one request later.
    """

    def __init__(self, purses: Sequence[Purse]) -> None:
        self._purses = tuple(purses)
        self._full: Halt | None = None
        self._full_in = 0
        self._tool_in = 0
        self._told_in = 0
        self.halted: Halt | None = None

    def begin(self) -> Halt | None:
        """Why not even a first request may leave: others have used the budget up."""
        self.halted = next((halt for purse in self._purses if (halt := purse.no_room())), None)
        return self.halted

    def is_behind(self) -> bool:
        """Whether a request has been answered whose tokens are not told yet: the model has called a tool in it."""
        return self._tool_in > self._told_in and self.halted is None

    def hear(self, events: Sequence[Event]) -> Halt | None:
        """Count what is in these events; a `Halt` where the run has to end now."""
        for event in events:
            if type(event) is ToolStarted:
                self._tool_in = max(self._tool_in, event.turn)
            elif type(event) is TokensUsed:
                self._count(event)
        if self._full is not None and self.halted is None and self._tool_in >= self._full_in:
            self.halted = self._full
            return self.halted
        return None

    def _count(self, used: TokensUsed) -> None:
        if used.role == "main":
            self._told_in = max(self._told_in, used.turn)
        counts = Counts(
            input=used.input,
            cached=used.cached,
            output=used.output,
            thinking=used.thinking,
            tool=used.tool,
        )
        # Each of them: what one has no room for, the others have spent too.
        halts = [purse.book(used.model, counts) for purse in self._purses]
        halt = next((one for one in halts if one is not None), None)
        if halt is not None:
            # A subagent has an answer to give, and a request after the last one shows that it was not the last.
            is_last = used.role == "main" and self._full is None
            self._full = halt
            self._full_in = used.turn if is_last else 0
