"""Recordings of runs: what a file is, and its events, batch by batch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, Protocol

import msgspec

from geminids.events.model import AnyEvent, Event
from geminids.gemini.protocol.journal.lenient import UNREADABLE
from geminids.gemini.protocol.stream_json import UnexpectedLine, decode_line
from geminids.run.recordings.stream_json import events_of_stream

__all__ = ["Kind", "Readable", "Recording", "kind_of_line", "open_recording"]

Kind = Literal["events", "stream-json", "report", "session"]

_BLOCK = 256 * 1024
# How many lines of noise may stand before the first that says what a file is.
_MOST_NOISE = 100
_OF_SESSIONS = ("sessionId", "$set", "$rewindTo")
# What `--output-format json` prints begins so, in one line or indented; a session file has other names.
_REPORT = re.compile(rb'^\{\s*"(?:session_id|response|stats|error)"\s*:', re.MULTILINE)
_INDENTED = re.compile(rb"\{\s*\n")
_IN_SESSIONS = (b'"sessionId"', b'"messages"')
_BOM = b"\xef\xbb\xbf"
_events: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class Readable(Protocol):
    """What has bytes: a file or a pipe, opened for reading."""

    def read1(self, size: int, /) -> bytes: ...


class Recording:
    """A file whose kind is known. `blocks` are its bytes, whole lines each; both iterators can be used once."""

    def __init__(self, kind: Kind | None, blocks: Iterable[bytes]) -> None:
        self.kind = kind
        self.blocks = blocks
        self.left_out: list[int] = []
        """The numbers of the lines that are no events, where the others are: the file was cut off, or changed."""

    def batches(self) -> Iterator[Sequence[Event]]:
        """The events, none of them held longer than its batch."""
        return events_of_stream(self.blocks) if self.kind == "stream-json" else self._batches()

    def _batches(self) -> Iterator[Sequence[Event]]:
        number = 0
        for block in self.blocks:
            try:
                yield _events.decode_lines(block)
            except UNREADABLE:
                yield list(self._one_by_one(block, number))
            number += block.count(b"\n")

    def _one_by_one(self, block: bytes, before: int) -> Iterator[Event]:
        for number, line in enumerate(block.split(b"\n"), before + 1):
            if not line.strip():
                continue
            try:
                yield _events.decode(line)
            except UNREADABLE:
                self.left_out.append(number)


def open_recording(source: Readable) -> Recording:
    """Read as much of it as says what it is: events, stream-json or json of the CLI, a session file, or none (None)."""
    blocks = _blocks(source)
    head: list[bytes] = []
    kind: Kind | None = None
    lines = 0
    for block in blocks:
        head.append(block)
        for line in block.split(b"\n", _MOST_NOISE)[:_MOST_NOISE]:
            kind = kind or kind_of_line(line)
        lines += block.count(b"\n")
        # Behind a lone brace, the next line says more.
        if (kind is not None and block.strip() != b"{") or lines >= _MOST_NOISE:
            break
    if kind in (None, "session"):
        kind = _of_document(kind, b"".join(head))
    return Recording(kind, chain(head, blocks))


def _of_document(kind: Kind | None, head: bytes) -> Kind | None:
    """Many files begin with a brace in a line of its own: what stands in them says more."""
    if _REPORT.search(head):
        return "report"
    return None if _INDENTED.match(head) and not any(name in head for name in _IN_SESSIONS) else kind


def kind_of_line(line: bytes) -> Kind | None:
    """What a file is that has this line; None for a line that any file may have.

    >>> kind_of_line(b'{"type":"init","session_id":"s1"}'), kind_of_line(b"Loaded cached credentials.")
    ('stream-json', None)
    """
    line = line.strip()
    if not line.startswith((b"{", _BOM)):
        return None
    try:
        _events.decode(line)
        return "events"
    except UNREADABLE:
        pass
    if any(not isinstance(part, UnexpectedLine) for part in decode_line(line)):
        return "stream-json"
    return "session" if line == b"{" or _is_of_session(line) else None


def _is_of_session(line: bytes) -> bool:
    try:
        value: Any = msgspec.json.decode(line)
    except UNREADABLE:
        return False
    is_message = isinstance(value, dict) and {"id", "timestamp", "type"} <= set(value)
    return is_message or any(name in value for name in _OF_SESSIONS)


def _blocks(source: Readable) -> Iterator[bytes]:
    """Whole lines as soon as they are there, however they arrive; without the mark that some editors put first."""
    held: list[bytes] = []
    is_first = True
    while chunk := source.read1(_BLOCK):
        if is_first:
            is_first = False
            chunk = chunk.removeprefix(_BOM)
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield b"".join((*held, whole, newline))
            held = [rest] if rest else []
        else:
            held.append(chunk)
    if held:
        yield b"".join(held)
