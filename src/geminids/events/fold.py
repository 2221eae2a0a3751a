"""Events fold into what a run was: its text, its answer, its turns, its attempts."""

from __future__ import annotations

from collections.abc import Iterable

from geminids.events.model import Event, Started, Text, Thought, TokensUsed, ToolFinished, ToolStarted, Turn

__all__ = ["Fold"]


class Fold:
    """Reads events one batch after the other, in order, and remembers what their end must say.

    The text is one string that grows in place: a million small strings would take sixty megabytes, and joining
    them at the end would take the text a second time.
    """

    def __init__(self) -> None:
        self._text = ""
        self._answer_from = 0
        self._turn = 0
        self._begins: list[tuple[int, int]] = []
        self._others: list[Thought | TokensUsed | ToolFinished] = []
        self.attempts = 0
        self.session_id: str | None = None
        self.tool_calls = 0

    def add(self, events: Iterable[Event]) -> None:
        pieces: list[str] = []
        turn = self._turn
        for event in events:
            kind = type(event)
            if kind is Text:
                if event.turn != turn:
                    turn = event.turn
                    self._grow(pieces)
                    self._begins.append((turn, len(self._text)))
                pieces.append(event.text)  # type: ignore[attr-defined]
            elif kind is ToolStarted or kind is ToolFinished:
                self._grow(pieces)
                self._take_tool(event)  # type: ignore[arg-type]
            elif kind is Thought or kind is TokensUsed:
                self._others.append(event)  # type: ignore[arg-type]
            elif kind is Started:
                pieces.clear()
                turn = 0
                self._begin_attempt(event)  # type: ignore[arg-type]
        self._turn = turn
        self._grow(pieces)

    def _take_tool(self, event: ToolStarted | ToolFinished) -> None:
        if isinstance(event, ToolFinished):
            self._others.append(event)
        if event.parent is None:
            # What a subagent does is no part of this conversation's text, and may be told late.
            self._answer_from = len(self._text)
            self.tool_calls += isinstance(event, ToolStarted)

    def _begin_attempt(self, event: Started) -> None:
        self._text = ""
        self._answer_from = 0
        self._begins.clear()
        self._others.clear()
        self.attempts += 1
        self.session_id = event.session_id or self.session_id

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

    @property
    def tokens(self) -> list[TokensUsed]:
        """The requests of the last attempt, in the order in which they became known."""
        return [event for event in self._others if type(event) is TokensUsed]

    def turns(self) -> tuple[Turn, ...]:
        """The conversation in its true order, whichever order its events came in."""
        ends = [*(begin for _, begin in self._begins[1:]), len(self._text)]
        texts = {turn: self._text[begin:end] for (turn, begin), end in zip(self._begins, ends, strict=False)}
        others: dict[int, list[Thought | TokensUsed | ToolFinished]] = {turn: [] for turn in texts}
        for event in self._others:
            others.setdefault(event.turn, []).append(event)
        return tuple(
            Turn(
                number=number,
                thoughts=tuple(event for event in others[number] if isinstance(event, Thought)),
                text=texts.get(number, ""),
                tools=_in_order([event for event in others[number] if isinstance(event, ToolFinished)]),
                tokens=tuple(event for event in others[number] if isinstance(event, TokensUsed)),
            )
            for number in sorted(others)
        )


def _in_order(tools: list[ToolFinished]) -> tuple[ToolFinished, ...]:
    """A subagent's calls before the end of the call that it was: they may be told behind it."""
    of_agents: dict[str, list[ToolFinished]] = {}
    for tool in tools:
        if tool.parent is not None:
            of_agents.setdefault(tool.parent, []).append(tool)
    ordered: list[ToolFinished] = []
    for tool in tools:
        if tool.parent is None:
            ordered += (*of_agents.pop(tool.id, ()), tool)
    return (*ordered, *(tool for left in of_agents.values() for tool in left))
