"""Events fold into what a run was: its text, its answer, its attempts."""

from __future__ import annotations

from collections.abc import Iterable

from geminids.events.model import Event, Started, Text, ToolFinished, ToolStarted

__all__ = ["Fold"]


class Fold:
    """Reads events one batch after the other, in order, and remembers what their end must say.

    Pieces of text are joined batch by batch: a million small strings would take sixty megabytes.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._answer_from = 0
        self.attempts = 0
        self.session_id: str | None = None
        self.tool_calls = 0

    def add(self, events: Iterable[Event]) -> None:
        pieces: list[str] = []
        for event in events:
            kind = type(event)
            if kind is Text:
                pieces.append(event.text)  # type: ignore[attr-defined]
            elif kind is ToolStarted or kind is ToolFinished:
                self._keep(pieces)
                self._answer_from = len(self._text)
                self.tool_calls += kind is ToolStarted
            elif kind is Started:
                self._keep(pieces)
                self._text.clear()
                self._answer_from = 0
                self.attempts += 1
                self.session_id = event.session_id or self.session_id  # type: ignore[attr-defined]
        self._keep(pieces)

    def _keep(self, pieces: list[str]) -> None:
        if pieces:
            self._text.append("".join(pieces))
            pieces.clear()

    @property
    def text(self) -> str:
        """All text of the last attempt."""
        return "".join(self._text)

    @property
    def answer(self) -> str:
        """The text after the last tool."""
        return "".join(self._text[self._answer_from :])
