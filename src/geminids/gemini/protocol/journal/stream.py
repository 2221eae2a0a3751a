"""Stream session files of any size: a first pass locates the messages, a second reads them."""

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
from geminids.gemini.protocol.journal.replay import (
    MessageOrder,
    blocks,
    header_from,
    legacy_conversation,
    skeleton,
)

__all__ = ["Journal", "open_journal", "subagent_files"]

_BUFFER = 128 * 1024
# Position of a message: the offset of its line; in a checkpoint, also its index there.
Place = int | tuple[int, int]


class _Mark(msgspec.Struct, frozen=True, gc=False, rename={"rewind": "$rewindTo"}):
    """The fields of a line that identify its kind; other fields are skipped."""

    id: Any = None
    rewind: Any = None


_mark: msgspec.json.Decoder[_Mark] = msgspec.json.Decoder(_Mark)


class Journal(msgspec.Struct, frozen=True):
    """A session file after the first pass. `messages` can be iterated repeatedly."""

    header: Header | None
    messages: Iterable[Message]


class _Lines(msgspec.Struct, frozen=True):
    """The remaining messages of a `.jsonl` file, in order."""

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
                        held = (offset, _messages_at(_line_at(file, offset)))
                    message = _nth(held[1], number)
                # None if the file has changed since the first pass.
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
    """Read the header of a session file of any release; its messages are streamed.

    Raises only OSError.
    """
    order: MessageOrder[Place] = MessageOrder()
    fields: dict[str, Any] = {}
    with path.open("rb", _BUFFER) as file:
        offset = 0
        while line := file.readline():
            _apply_line(line, offset, order, fields)
            offset += len(line)
            line = b""  # free it: a checkpoint is long, so never hold two lines at once
        header = header_from(fields)
        if header is not None:
            return Journal(header, _Lines(path, list(order.by_id.values())))
        file.seek(0)
        legacy = _legacy(file, path)
        if legacy is not None:
            return legacy
        file.seek(0)
        conversation = legacy_conversation(file.read())
    if conversation is not None:
        return Journal(conversation.header, conversation.messages)
    return Journal(None, _Lines(path, list(order.by_id.values())))


def _apply_line(line: bytes, offset: int, order: MessageOrder[Place], fields: dict[str, Any]) -> None:
    """Apply a line to the conversation; messages are stored as positions in the file."""
    if not line.startswith(b"{") and not may_be_record(line):
        return None
    try:
        mark = _mark.decode(line)
    except UNREADABLE:
        if not may_be_record(line):
            return None
    else:
        if isinstance(mark.rewind, str):
            return order.rewind(mark.rewind)
        if isinstance(mark.id, str):
            return order.put(mark.id, offset)
    if line.startswith(b'{"$set":{') and (update := update_in(line)) is not None:
        changed, items = update
        fields.update(changed)
        if items is not None:
            order.by_id.clear()
            for number, item in enumerate(items):
                if (message_id := _id_of(item)) is not None:
                    order.put(message_id, (offset, number))
        return None
    return _apply_record(line, offset, order, fields)


def _apply_record(line: bytes, offset: int, order: MessageOrder[Place], fields: dict[str, Any]) -> None:
    record = decode_record(line)
    if isinstance(record, Message):
        order.put(record.id, offset)
    elif isinstance(record, Rewind):
        order.rewind(record.message_id)
    elif record is not None:
        fields.update(record.fields)
        if isinstance(record, Set) and record.messages is not None:
            order.by_id.clear()
        for number, message in enumerate(record.messages or ()):
            order.put(message.id, (offset, number))


def _id_of(item: msgspec.Raw) -> str | None:
    try:
        message_id = _mark.decode(item).id
        return message_id if isinstance(message_id, str) else None
    except UNREADABLE:
        message = decode_message(bytes(item))
        return None if message is None else message.id


def _line_at(file: BinaryIO, offset: int) -> bytes:
    file.seek(offset)
    return file.readline()


def _messages_at(line: bytes) -> list[msgspec.Raw] | list[Message]:
    """Return the messages of a checkpoint, undecoded if possible."""
    if line.startswith(b'{"$set":{') and (update := update_in(line)) is not None:
        return update[1] or []
    record = decode_record(line)
    return (record.messages or []) if isinstance(record, Set | Header) else []


def _nth(listed: list[Any], number: int) -> Message | None:
    item = listed[number] if number < len(listed) else None
    return decode_message(bytes(item)) if isinstance(item, msgspec.Raw) else item


def _legacy(file: BinaryIO, path: Path) -> Journal | None:
    """Open an indented legacy file; None if its layout differs, then the caller reads it whole."""
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
    """Return the files of a session's subagents, oldest first.

    Since 0.39 they are `chats/<session id>/<id>.jsonl`.
    """
    if not session_id:
        return []
    folder = session_file.parent / re.sub(r"[^a-zA-Z0-9_-]", "_", session_id)
    try:
        return sorted(folder.glob("*.jsonl"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    except OSError:
        return []
