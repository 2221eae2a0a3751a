"""Events fold into what a run was: its text, its answer, its attempts."""

from __future__ import annotations

from collections.abc import Iterable

from geminids.events.model import Event, Started, Text, ToolFinished, ToolStarted

__all__ = ["Fold"]


class Fold:
    """Reads events one batch after the other, in order, and remembers what their end must say.

    The text is one string that grows in place: a million small strings would take sixty megabytes, and joining
    them at the end would take the text a second time.
    """

    def __init__(self) -> None:
        self._text = ""
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
                self._grow(pieces)
                self._answer_from = len(self._text)
                self.tool_calls += kind is ToolStarted
            elif kind is Started:
                pieces.clear()
                self._text = ""
                self._answer_from = 0
                self.attempts += 1
                self.session_id = event.session_id or self.session_id  # type: ignore[attr-defined]
        self._grow(pieces)

    def _grow(self, pieces: list[str]) -> None:
        if pieces:
            # CPython grows a string in place where a local variable is all that holds it.
            text, self._text = self._text, ""
            text += "".join(pieces)
            self._text = text
            pieces.clear()

    @property
    def text(self) -> str:
        """All text of the last attempt."""
        return self._text

    @property
    def answer(self) -> str:
        """The text after the last tool."""
        return self._text[self._answer_from :]
