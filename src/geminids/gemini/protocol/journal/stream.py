"""Read session files of any size with little memory.

The first pass over the file finds the position of each message. The second pass reads the messages
one by one. The module `records.py` explains the lines of a session file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from geminids.gemini.protocol.journal.lenient import UNREADABLE, value_of
from geminids.gemini.protocol.journal.records import (
    Header,
    Rewind,
    Set,
    StoredMessage,
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

__all__ = ["JournalFile", "open_journal", "subagent_files"]

_BUFFER = 128 * 1024
# The position of a message: the offset of its line in the file. If the line is a checkpoint (a
# record with all messages), the position also has the index of the message in it.
Place = int | tuple[int, int]


class _Mark(msgspec.Struct, frozen=True, gc=False, rename={"rewind": "$rewindTo"}):
    """The fields of a line in a session file that decide the order. A line with `id` is a message. A line with `rewind`
    (`$rewindTo` in the file) removes messages.

    All other fields are skipped while decoding.
    """

    id: Any = None
    timestamp: Any = None
    rewind: Any = None


_mark: msgspec.json.Decoder[_Mark] = msgspec.json.Decoder(_Mark)


class JournalFile(msgspec.Struct, frozen=True):
    """An opened session file. `messages` can be iterated several times. If the file has one record
    per line, each iteration reads the file again.

    `header` is None if the CLI would not accept the file as a session.
    """

    header: Header | None
    messages: Iterable[StoredMessage]


class _Lines(msgspec.Struct, frozen=True):
    """Reads the messages of a session file in the format JSON Lines, in the order of the
    conversation.

    `places` contains the position in the file of each message to read. Messages that a later line
    replaces or removes are not included.
    """

    path: Path
    places: list[Place]

    def __iter__(self) -> Iterator[StoredMessage]:
        held: tuple[int, Any] = (-1, None)
        with self.path.open("rb", _BUFFER) as file:
            for place in self.places:
                offset, number = place if isinstance(place, tuple) else (place, None)
                if number is None:
                    record = decode_record(_line_at(file, offset))
                    message = record if isinstance(record, StoredMessage) else None
                else:
                    if held[0] != offset:
                        held = (-1, None)
                        held = (offset, _messages_at(_line_at(file, offset)))
                    message = _nth(held[1], number)
                # The message is None if the file has changed since the first pass.
                if message is not None:
                    yield message


class _Blocks(msgspec.Struct, frozen=True):
    """Reads the messages of a session file that is one indented JSON object.

    `places` contains the position and the length of each message in the file, in bytes.
    """

    path: Path
    places: list[tuple[int, int]]

    def __iter__(self) -> Iterator[StoredMessage]:
        with self.path.open("rb", _BUFFER) as file:
            for offset, length in self.places:
                file.seek(offset)
                message = decode_legacy_message(file.read(length))
                if message is not None:
                    yield message


def open_journal(path: Path) -> JournalFile:
    """Open a session file of any CLI release. Its header is read, and the positions of its messages
    are found; the messages are read later.

    Raises `OSError` if the file cannot be read. No other error is raised.
    """
    order: MessageOrder[Place] = MessageOrder()
    fields: dict[str, Any] = {}
    with path.open("rb", _BUFFER) as file:
        offset = 0
        while line := file.readline():
            _apply_line(line, offset, order, fields)
            offset += len(line)
            line = b""  # free the memory: a line can be long, so never hold two lines at once
        header = header_from(fields)
        if header is not None:
            return JournalFile(header, _Lines(path, list(order.by_id.values())))
        file.seek(0)
        legacy = _legacy(file, path)
        if legacy is not None:
            return legacy
        file.seek(0)
        conversation = legacy_conversation(file.read())
    if conversation is not None:
        return JournalFile(conversation.header, conversation.messages)
    return JournalFile(None, _Lines(path, list(order.by_id.values())))


def _apply_line(line: bytes, offset: int, order: MessageOrder[Place], fields: dict[str, Any]) -> None:
    """Apply one line of a session file: add, replace or remove the positions of messages in
    `order`, and store fields of the header in `fields`.

    `offset` is the position of the line in the file.
    """
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
            return order.put(mark.id, offset, _text(mark.timestamp))
    if line.startswith(b'{"$set":{') and (update := update_in(line)) is not None:
        changed, items = update
        if "sessionId" in changed:
            order.resume()
        fields.update(changed)
        if items is not None:
            messages: list[tuple[str, Place, str]] = []
            for number, item in enumerate(items):
                message_id, at = _id_and_time(item)
                if message_id is not None:
                    messages.append((message_id, (offset, number), at))
            order.checkpoint(messages)
        return None
    return _apply_record(line, offset, order, fields)


def _apply_record(line: bytes, offset: int, order: MessageOrder[Place], fields: dict[str, Any]) -> None:
    record = decode_record(line)
    if isinstance(record, StoredMessage):
        order.put(record.id, offset, record.timestamp)
    elif isinstance(record, Rewind):
        order.rewind(record.message_id)
    elif record is not None:
        if "sessionId" in record.fields:
            order.resume()
        fields.update(record.fields)
        places: list[tuple[str, Place, str]] = [
            (message.id, (offset, number), message.timestamp)
            for number, message in enumerate(record.messages or ())
        ]
        if isinstance(record, Set) and record.messages is not None:
            order.checkpoint(places)
        else:
            for place in places:
                order.put(*place)


def _id_and_time(item: msgspec.Raw) -> tuple[str | None, str]:
    """Return the id and the timestamp of a message. The id is None if the message cannot be read."""
    try:
        mark = _mark.decode(item)
        return mark.id if isinstance(mark.id, str) else None, _text(mark.timestamp)
    except UNREADABLE:
        message = decode_message(bytes(item))
        return (None, "") if message is None else (message.id, message.timestamp)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _line_at(file: BinaryIO, offset: int) -> bytes:
    file.seek(offset)
    return file.readline()


def _messages_at(line: bytes) -> list[msgspec.Raw] | list[StoredMessage]:
    """Return the messages in a line that contains a list of messages.

    If the line is a valid `$set` record, the messages are returned as undecoded JSON, otherwise as
    decoded messages. The list is empty if the line contains no messages.
    """
    if line.startswith(b'{"$set":{') and (update := update_in(line)) is not None:
        return update[1] or []
    record = decode_record(line)
    return (record.messages or []) if isinstance(record, Set | Header) else []


def _nth(listed: list[Any], number: int) -> StoredMessage | None:
    item = listed[number] if number < len(listed) else None
    return decode_message(bytes(item)) if isinstance(item, msgspec.Raw) else item


def _legacy(file: BinaryIO, path: Path) -> JournalFile | None:
    """Open a session file that is one indented JSON object, as CLI releases up to 0.38 wrote it.

    Return None if the file is not indented in the way in which the CLI indents it. Then the caller
    must read the complete file at once.
    """
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
    return JournalFile(header_of(without_messages(value)), _Blocks(path, places))


def _object(text: bytes) -> Any:
    try:
        return _mark.decode(text)
    except UNREADABLE:
        return value_of(text)


def subagent_files(session_file: Path, session_id: str) -> list[Path]:
    """Return the session files of the subagents that a session started, the oldest one first.

    `session_file` is the file of the session itself. Since 0.39, the files of its subagents are in
    the same folder, as `<session id>/<subagent id>.jsonl`.
    """
    if not session_id:
        return []
    folder = session_file.parent / re.sub(r"[^a-zA-Z0-9_-]", "_", session_id)
    try:
        return sorted(folder.glob("*.jsonl"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    except OSError:
        return []
