"""Collect the events of a run, to build its text, answer and turns from them."""

from __future__ import annotations

import zlib
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

_PackedEvent = Thought | TokensUsed | ToolFinished
_packed_decoder: msgspec.json.Decoder[_PackedEvent] = msgspec.json.Decoder(_PackedEvent)
# Lines are compressed in blocks of this many bytes.
_BLOCK_BYTES = 64 * 1024
_starts_decoder: msgspec.json.Decoder[list[int]] = msgspec.json.Decoder(list[int])


class Accumulator:
    """Collects the events of a run, for the result of the run: the text, the tokens, the thoughts
    and the tool calls.

    The text is one string that grows in place. A list of a million small strings would take 60 MB,
    and joining the strings would copy the whole text. Thoughts and tool events are stored
    compressed, at a few percent of their size.
    """

    def __init__(self) -> None:
        self._text = ""
        self._answer_from = 0
        self._turn = 0
        self._turn_starts = array("Q")  # pairs: number of a turn, its offset in the text
        self._packing = _Packing()
        self._tokens: list[TokensUsed] = []
        self.earlier: list[TokensUsed] = []
        """The requests of all attempts except the last one. They are billed too."""
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
                    self._turn_starts.extend((turn, len(self._text)))
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
            # Ignore the tools of subagents: they do not split the text of the main agent, and their
            # events may arrive late.
            self._answer_from = len(self._text)
            self.tool_calls += isinstance(event, ToolStarted)

    def _begin_attempt(self, event: Started) -> None:
        self._text = ""
        self._answer_from = 0
        del self._turn_starts[:]
        self._packing = _Packing()
        self.earlier += self._tokens
        self._tokens.clear()
        self.attempts += 1
        self.session_id = event.session_id or self.session_id

    def _grow(self, pieces: list[str]) -> None:
        if pieces:
            # CPython grows a string in place only if a local variable holds the only reference.
            text, self._text = self._text, ""
            text += "".join(pieces)
            self._text = text
            pieces.clear()

    @property
    def text(self) -> str:
        """All text of the model in the last attempt of the run."""
        return self._text

    @property
    def answer(self) -> str:
        """The text of the model in the last attempt of the run, after the last tool call of the
        main agent.
        """
        return self._text[self._answer_from :]

    @property
    def tokens(self) -> list[TokensUsed]:
        """The API requests of the last attempt of the run, in the order of their events."""
        return list(self._tokens)

    def turns(self, redacted: Callable[[str], str]) -> tuple[Turn, ...]:
        """Return the turns of the last attempt of the run. `redacted` is a function that returns a
        text with its secrets masked.
        """
        return turns_of(redacted(self._text), self.conversation(redacted))

    def conversation(self, redacted: Callable[[str], str] = str) -> bytes:
        """Return the conversation of the last attempt without its text, as compressed bytes.
        `turns_of` builds the turns from these bytes and the text.

        The bytes contain all events except text, and the position in the text at which each turn
        starts. `redacted` is the function that masks the secrets in the text. It is needed because
        masking changes these positions.
        """
        lines = [*map(encode_event, self._tokens), msgspec.json.encode(self._redacted_starts(redacted))]
        return self._packing.finished(b"\n".join(lines))

    def _redacted_starts(self, redacted: Callable[[str], str]) -> list[int]:
        starts = self._turn_starts.tolist()
        size = len(redacted(self._text))
        if size == len(self._text):
            return starts
        # Masked secrets have changed the length of the text, so calculate the offsets again. If a
        # secret spans two turns, the offset between them is approximate.
        at, ends = 0, [*starts[3::2], len(self._text)]
        for number, end in enumerate(ends):
            begin, starts[2 * number + 1] = starts[2 * number + 1], min(at, size)
            at += len(redacted(self._text[begin:end]))
        return starts


class _Packing:
    """Stores events as compressed lines of JSON. They are compressed because the outputs of tools
    stay in memory as long as the result of the run.
    """

    def __init__(self) -> None:
        self._lines = bytearray()
        self._packed = bytearray()
        self._packer: Any = None

    def add(self, event: Event) -> None:
        self._lines += encode_event(event)
        self._lines += b"\n"
        if len(self._lines) > _BLOCK_BYTES:
            self._packed += self._get_packer().compress(self._lines)
            self._lines.clear()

    def finished(self, last: bytes) -> bytes:
        """Return all stored events, followed by the lines `last`, as compressed bytes. More events
        can be added after this call.
        """
        if self._packer is None:
            # Do not create a compressor for a few lines: it would take 256 KB as long as the
            # accumulator exists.
            return zlib.compress(b"".join((self._lines, last)), 1)
        packer = self._packer.copy()
        return b"".join((self._packed, packer.compress(self._lines), packer.compress(last), packer.flush()))

    def _get_packer(self) -> Any:
        if self._packer is None:
            self._packer = zlib.compressobj(1)
        return self._packer


def turns_of(text: str, conversation: bytes) -> tuple[Turn, ...]:
    """Return the turns of a conversation, ordered by turn number, even if their events arrived in
    another order.

    `text` is the whole text of the model, with secrets masked. `conversation` contains
    everything else, in the form that `Accumulator.conversation` returned. If `conversation` is
    empty, there are no turns.
    """
    if not conversation:
        return ()
    events, _, last = b"\n".join((b"", zlib.decompress(conversation))).rpartition(b"\n")
    starts = _starts_decoder.decode(last)
    ends = [*starts[3::2], len(text)]
    texts = {
        turn: text[begin:end]
        for turn, begin, end in zip(starts[::2], starts[1::2], ends, strict=bool(starts))
    }
    others: dict[int, list[_PackedEvent]] = {turn: [] for turn in texts}
    for event in _packed_decoder.decode_lines(events):
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
    """Return the tool calls in the order in which they finished. The calls of a subagent finish
    before the call that started the subagent. So the calls of the subagent are placed directly
    before that call, even if their events came later.
    """
    by_parent: dict[str, list[ToolFinished]] = {}
    for tool in tools:
        if tool.parent is not None:
            by_parent.setdefault(tool.parent, []).append(tool)
    ordered: list[ToolFinished] = []
    for tool in tools:
        if tool.parent is None:
            ordered += (*by_parent.pop(tool.id, ()), tool)
    return (*ordered, *(tool for calls in by_parent.values() for tool in calls))
