"""Which turn of the conversation an update of an ACP session is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from geminids.events.ledger import Ledger

__all__ = ["Progress", "Results"]

# Of the calls of one turn: the id, the tool, and what the model was told.
Results = Sequence[tuple[str, str, Mapping[str, Any]]]


class Progress:
    """Which turn of the conversation an update is of, with what the journal knows of the turns so far.

    Updates do not say where a turn ends: tools run one after the other, and a call of an unknown tool is not told
    at all. An answer and the results of its calls are in the journal before the next answer begins; the updates
    may still be on their way.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pieces: list[str] = []
        self._thoughts = 0
        self.tool_ended = False
        self.answers: list[tuple[str, int]] = []
        self.results: list[Results] = []

    @property
    def _index(self) -> int:
        return self._ledger.turn - 1

    @property
    def has_results(self) -> bool:
        return self._index < len(self.results)

    @property
    def current_results(self) -> Results:
        return self.results[self._index] if self.has_results else ()

    def is_over(self, tool: str | None) -> bool:
        """Whether what comes now, a tool's call or else text or a thought, is of a later turn."""
        if tool is not None:
            return self.has_results and tool not in [call_id for call_id, _, _ in self.current_results]
        if self.tool_ended:
            return True
        if not self.has_results or self._index >= len(self.answers):
            return False
        text, thoughts = self.answers[self._index]
        return self._thoughts >= thoughts and "".join(self._pieces).strip() == text

    def next_turn(self) -> None:
        self._ledger.turn += 1
        self._pieces, self._thoughts, self.tool_ended = [], 0, False

    def said(self, text: str) -> None:
        self._pieces.append(text)

    def thought(self) -> None:
        self._thoughts += 1
