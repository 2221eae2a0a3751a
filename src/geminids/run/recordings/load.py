"""Detect which kind of recording a file is, and read its events in batches."""

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

__all__ = ["Kind", "Readable", "RecordedRun", "kind_of_line", "open_recording"]

Kind = Literal["events", "stream-json", "report", "session"]

_BLOCK = 256 * 1024
# Only this many lines at the start of a file are searched for a line that identifies its kind.
_MOST_NOISE = 100
_SESSION_KEYS = ("sessionId", "$set", "$rewindTo")
# The output of `--output-format json` is an object that starts with one of these keys. It is on one
# line, or indented.
_REPORT = re.compile(rb'^\{\s*"(?:session_id|response|stats|error)"\s*:', re.MULTILINE)
_INDENTED = re.compile(rb"\{\s*\n")
_SESSION_FILE_KEYS = (b'"sessionId"', b'"messages"')
_BOM = b"\xef\xbb\xbf"
_events: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class Readable(Protocol):
    """A file or pipe, opened for reading bytes."""

    def read1(self, size: int, /) -> bytes: ...


class RecordedRun:
    """A recorded run in a file.

    `kind` is the kind of the file, or None if it is unknown. `blocks` yields the bytes of the file,
    in blocks of whole lines. Iterate over either `blocks` or `batches()`, and only once.
    """

    def __init__(self, kind: Kind | None, blocks: Iterable[bytes]) -> None:
        self.kind = kind
        self.blocks = blocks
        self.left_out: list[int] = []
        """The numbers of the lines that are not events. Such a line may be incomplete or edited."""

    def batches(self) -> Iterator[Sequence[Event]]:
        """Yield the events in batches. Only the current batch is in memory."""
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


def open_recording(source: Readable) -> RecordedRun:
    """Detect the kind of a file by its first lines, and return an object that reads its events."""
    blocks = _blocks(source)
    head: list[bytes] = []
    kind: Kind | None = None
    lines = 0
    for block in blocks:
        head.append(block)
        for line in block.split(b"\n", _MOST_NOISE)[:_MOST_NOISE]:
            kind = kind or kind_of_line(line)
        lines += block.count(b"\n")
        # If there is only a brace so far, read more to detect the kind.
        if (kind is not None and block.strip() != b"{") or lines >= _MOST_NOISE:
            break
    if kind in (None, "session"):
        kind = _kind_of_document(kind, b"".join(head))
    return RecordedRun(kind, chain(head, blocks))


def _kind_of_document(kind: Kind | None, head: bytes) -> Kind | None:
    """Return the kind of a file that may be one JSON document, or None if the kind is unknown.

    `head` is the beginning of the file. `kind` is the kind that the first lines indicate. For
    indented JSON, this kind can be wrong, because the first line may be only a brace.
    """
    if _REPORT.search(head):
        return "report"
    return None if _INDENTED.match(head) and not any(key in head for key in _SESSION_FILE_KEYS) else kind


def kind_of_line(line: bytes) -> Kind | None:
    """Return the kind of recording from which `line` comes. Return None if `line` does not show it.

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
    return "session" if line == b"{" or _is_session_record(line) else None


def _is_session_record(line: bytes) -> bool:
    try:
        value: Any = msgspec.json.decode(line)
    except UNREADABLE:
        return False
    is_message = isinstance(value, dict) and {"id", "timestamp", "type"} <= set(value)
    return is_message or any(key in value for key in _SESSION_KEYS)


def _blocks(source: Readable) -> Iterator[bytes]:
    """Yield the file in blocks of whole lines, as soon as they arrive.

    A byte order mark at the start is removed.
    """
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
