"""Session files of any size, message by message: one pass finds what is left, a second one reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from geminids.gemini.protocol.journal.lenient import UNREADABLE, value_of
from geminids.gemini.protocol.journal.records import (
    Header,
    Message,
    Rewind,
    Set,
    decode_legacy_message,
    decode_message,
    decode_record,
    header_of,
    may_be_record,
    update_in,
    without_messages,
)
from geminids.gemini.protocol.journal.replay import Thread, blocks, header_from, legacy_conversation, skeleton

__all__ = ["Journal", "open_journal", "subagent_files"]

_BUFFER = 128 * 1024
# Where a message stands: the offset of its line, and in a checkpoint its number there too.
Place = int | tuple[int, int]


class _Mark(msgspec.Struct, frozen=True, gc=False, rename={"rewind": "$rewindTo"}):
    """As much of a line as says what it is; the rest is passed over."""

    id: Any = None
    rewind: Any = None


_mark: msgspec.json.Decoder[_Mark] = msgspec.json.Decoder(_Mark)


class Journal(msgspec.Struct, frozen=True):
    """A session file that was gone through once. `messages` can be iterated again and again."""

    header: Header | None
    messages: Iterable[Message]


class _Lines(msgspec.Struct, frozen=True):
    """The messages of a `.jsonl` file that are left, in their order."""

    path: Path
    places: list[Place]

    def __iter__(self) -> Iterator[Message]:
        held: tuple[int, Any] = (-1, None)
        with self.path.open("rb", _BUFFER) as file:
            for place in self.places:
                offset, number = place if isinstance(place, tuple) else (place, None)
                if number is None:
                    record = decode_record(_line_at(file, offset))
                    message = record if isinstance(record, Message) else None
                else:
                    if held[0] != offset:
                        held = (-1, None)
                        held = (offset, _listed(_line_at(file, offset)))
                    message = _nth(held[1], number)
                # None: the file has changed since.
                if message is not None:
                    yield message


class _Blocks(msgspec.Struct, frozen=True):
    """The messages of an indented legacy file: offset and length of each."""

    path: Path
    places: list[tuple[int, int]]

    def __iter__(self) -> Iterator[Message]:
        with self.path.open("rb", _BUFFER) as file:
            for offset, length in self.places:
                file.seek(offset)
                message = decode_legacy_message(file.read(length))
                if message is not None:
                    yield message


def open_journal(path: Path) -> Journal:
    """Read the header of a session file of any release; its messages are streamed. Raises OSError, and nothing else."""
    thread: Thread[Place] = Thread()
    fields: dict[str, Any] = {}
    with path.open("rb", _BUFFER) as file:
        offset = 0
        while line := file.readline():
            _note(line, offset, thread, fields)
            offset += len(line)
            line = b""  # a checkpoint is long: not two of them at once
        header = header_from(fields)
        if header is not None:
            return Journal(header, _Lines(path, list(thread.places.values())))
        file.seek(0)
        legacy = _legacy(file, path)
        if legacy is not None:
            return legacy
        file.seek(0)
        whole = legacy_conversation(file.read())
    if whole is not None:
        return Journal(whole.header, whole.messages)
    return Journal(None, _Lines(path, list(thread.places.values())))


def _note(line: bytes, offset: int, thread: Thread[Place], fields: dict[str, Any]) -> None:
    """What a line does to the conversation, with its place in the file for what is in it."""
    if not line.startswith(b"{") and not may_be_record(line):
        return None
    try:
        mark = _mark.decode(line)
    except UNREADABLE:
        if not may_be_record(line):
            return None
    else:
        if isinstance(mark.rewind, str):
            return thread.rewind(mark.rewind)
        if isinstance(mark.id, str):
            return thread.put(mark.id, offset)
    if line.startswith(b'{"$set":{') and (update := update_in(line)) is not None:
        changed, items = update
        fields.update(changed)
        if items is not None:
            thread.places.clear()
            for number, item in enumerate(items):
                if (message_id := _id_of(item)) is not None:
                    thread.put(message_id, (offset, number))
        return None
    return _note_odd(line, offset, thread, fields)


def _note_odd(line: bytes, offset: int, thread: Thread[Place], fields: dict[str, Any]) -> None:
    record = decode_record(line)
    if isinstance(record, Message):
        thread.put(record.id, offset)
    elif isinstance(record, Rewind):
        thread.rewind(record.message_id)
    elif record is not None:
        fields.update(record.fields)
        if isinstance(record, Set) and record.messages is not None:
            thread.places.clear()
        for number, message in enumerate(record.messages or ()):
            thread.put(message.id, (offset, number))


def _id_of(item: msgspec.Raw) -> str | None:
    try:
        found = _mark.decode(item).id
        return found if isinstance(found, str) else None
    except UNREADABLE:
        message = decode_message(bytes(item))
        return None if message is None else message.id


def _line_at(file: BinaryIO, offset: int) -> bytes:
    file.seek(offset)
    return file.readline()


def _listed(line: bytes) -> list[msgspec.Raw] | list[Message]:
    """The messages of a checkpoint, undecoded where that can be."""
    if line.startswith(b'{"$set":{') and (update := update_in(line)) is not None:
        return update[1] or []
    record = decode_record(line)
    return (record.messages or []) if isinstance(record, Set | Header) else []


def _nth(listed: list[Any], number: int) -> Message | None:
    item = listed[number] if number < len(listed) else None
    return decode_message(bytes(item)) if isinstance(item, msgspec.Raw) else item


def _legacy(file: BinaryIO, path: Path) -> Journal | None:
    """An indented legacy file; None for what is not just so, which is then read whole."""
    places: list[tuple[int, int]] = []
    around: list[bytes] = []
    for block in blocks(file):
        if block.is_message:
            if not isinstance(_object(block.text), dict | _Mark):
                return None
            places.append((block.offset, len(block.text)))
        around.append(b"null" if block.is_message else block.text)
    value = skeleton(b"".join(around))
    if value is None or value.get("messages") != [None] * len(places):
        return None
    return Journal(header_of(without_messages(value)), _Blocks(path, places))


def _object(text: bytes) -> Any:
    try:
        return _mark.decode(text)
    except UNREADABLE:
        return value_of(text)


def subagent_files(session_file: Path, session_id: str) -> list[Path]:
    """The files of a session's subagents (0.39 and newer), oldest first: `chats/<session id>/<id>.jsonl`."""
    if not session_id:
        return []
    folder = session_file.parent / re.sub(r"[^a-zA-Z0-9_-]", "_", session_id)
    try:
        return sorted(folder.glob("*.jsonl"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    except OSError:
        return []
