"""Events fold into what a run was: its text, its answer, its turns, its attempts."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from geminids.events.model import (
    Event,
    Notice,
    Started,
    Text,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
    Turn,
    encode_event,
)

__all__ = ["Accumulator", "turns_of"]

_Told = Thought | TokensUsed | ToolFinished
_told: msgspec.json.Decoder[_Told] = msgspec.json.Decoder(_Told)
# So many bytes are collected before they are compressed.
_LOOSE = 64 * 1024
_begins: msgspec.json.Decoder[list[int]] = msgspec.json.Decoder(list[int])


class Accumulator:
    """Reads events one batch after the other, in order, and remembers what their end must say.

    The text is one string that grows in place: a million small strings would take sixty megabytes, and joining
    them at the end would take the text a second time. The other events are kept packed, some hundredths
    of their size.
    """

    def __init__(self) -> None:
        self._text = ""
        self._answer_from = 0
        self._turn = 0
        self._begins = array("Q")  # turn, place in the text, turn, place ...
        self._packing = _Packing()
        self._tokens: list[TokensUsed] = []
        self.earlier: list[TokensUsed] = []
        """The requests of the attempts before the last: they have cost money too."""
        self.discarded: list[int] = []
        """The numbers of the requests whose answers the CLI discarded."""
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
                    self._begins.extend((turn, len(self._text)))
                pieces.append(event.text)  # type: ignore[attr-defined]
            elif kind is ToolStarted or kind is ToolFinished:
                self._grow(pieces)
                self._take_tool(event)  # type: ignore[arg-type]
            elif kind is Thought:
                self._packing.add(event)
            elif kind is TokensUsed:
                self._tokens.append(event)  # type: ignore[arg-type]
            elif kind is Notice:
                if event.code == "discarded" and event.request is not None:  # type: ignore[attr-defined]
                    self.discarded.append(event.request)  # type: ignore[attr-defined]
            elif kind is Started:
                pieces.clear()
                turn = 0
                self._begin_attempt(event)  # type: ignore[arg-type]
        self._turn = turn
        self._grow(pieces)

    def _take_tool(self, event: ToolStarted | ToolFinished) -> None:
        if isinstance(event, ToolFinished):
            self._packing.add(event)
        if event.parent is None:
            # What a subagent does is no part of this conversation's text, and may be told late.
            self._answer_from = len(self._text)
            self.tool_calls += isinstance(event, ToolStarted)

    def _begin_attempt(self, event: Started) -> None:
        self._text = ""
        self._answer_from = 0
        del self._begins[:]
        self._packing = _Packing()
        self.earlier += self._tokens
        self._tokens.clear()
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
        return list(self._tokens)

    def turns(self, redacted: Callable[[str], str]) -> tuple[Turn, ...]:
        """The conversation of the last attempt."""
        return turns_of(redacted(self._text), self.conversation(redacted))

    def conversation(self, redacted: Callable[[str], str] = str) -> bytes:
        """What `turns_of` needs beside the text, as `redacted` makes it: where turns begin, and all other events."""
        lines = [*map(encode_event, self._tokens), msgspec.json.encode(self._places(redacted))]
        return self._packing.finished(b"\n".join(lines))

    def _places(self, redacted: Callable[[str], str]) -> list[int]:
        places = self._begins.tolist()
        size = len(redacted(self._text))
        if size == len(self._text):
            return places
        # A secret was masked whose parts stand in two turns: the places move with it, as well as they can.
        at, ends = 0, [*places[3::2], len(self._text)]
        for number, end in enumerate(ends):
            begin, places[2 * number + 1] = places[2 * number + 1], min(at, size)
            at += len(redacted(self._text[begin:end]))
        return places


class _Packing:
    """Events as lines of JSON, compressed: what a run's tools have said is kept for as long as its result."""

    def __init__(self) -> None:
        self._lines = bytearray()
        self._packed = bytearray()
        self._packer: Any = None

    def add(self, event: Event) -> None:
        self._lines += encode_event(event)
        self._lines += b"\n"
        if len(self._lines) > _LOOSE:
            self._packed += self._made().compress(self._lines)
            self._lines.clear()

    def finished(self, last: bytes) -> bytes:
        """All of it, with `last` behind it; more can be added afterwards."""
        import zlib

        if self._packer is None:
            # A packer holds a quarter of a megabyte for as long as the fold lives: too much for a short turn.
            return zlib.compress(b"".join((self._lines, last)), 1)
        packer = self._packer.copy()
        return b"".join((self._packed, packer.compress(self._lines), packer.compress(last), packer.flush()))

    def _made(self) -> Any:
        if self._packer is None:
            import zlib  # imported late: not before the CLI is spawned

            self._packer = zlib.compressobj(1)
        return self._packer


def turns_of(text: str, conversation: bytes) -> tuple[Turn, ...]:
    """The conversation in its true order, whichever order its events came in."""
    if not conversation:
        return ()
    import zlib

    events, _, last = b"\n".join((b"", zlib.decompress(conversation))).rpartition(b"\n")
    places = _begins.decode(last)
    ends = [*places[3::2], len(text)]
    texts = {
        turn: text[begin:end]
        for turn, begin, end in zip(places[::2], places[1::2], ends, strict=bool(places))
    }
    others: dict[int, list[_Told]] = {turn: [] for turn in texts}
    for event in _told.decode_lines(events):
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
