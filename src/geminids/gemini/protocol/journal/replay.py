"""Build the conversation from a session file's records (the CLI's loadConversationRecord)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from geminids.gemini.protocol.journal.lenient import UNREADABLE, one_line, value_of
from geminids.gemini.protocol.journal.records import (
    Header,
    Message,
    Record,
    Rewind,
    Set,
    decode_legacy_message,
    decode_record,
    header_of,
    without_messages,
)

__all__ = [
    "Block",
    "Conversation",
    "MessageOrder",
    "blocks",
    "header_from",
    "legacy_conversation",
    "replay",
    "skeleton",
]

T = TypeVar("T")
_parts: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


class Conversation(msgspec.Struct, frozen=True):
    """A session after its last record. `header` is None if the CLI would not accept the file."""

    header: Header | None
    messages: list[Message]


class MessageOrder(Generic[T]):
    """Messages in conversation order, with rewind. Each change is O(1) amortized."""

    def __init__(self) -> None:
        self.by_id: dict[str, T] = {}

    def put(self, message_id: str, value: T) -> None:
        """Append a new message, or replace the message with this id."""
        self.by_id[message_id] = value

    def rewind(self, message_id: str) -> None:
        """Remove a message and all after it; all messages if the id is unknown."""
        if message_id not in self.by_id:
            self.by_id.clear()
        while self.by_id and self.by_id.popitem()[0] != message_id:
            pass


def replay(lines: Iterable[bytes]) -> Conversation:
    """Build the conversation from the lines of a session file of any release. Never raises.

    >>> first = b'{"id":"m1","type":"user","content":"helo"}'
    >>> again = b'{"id":"m1","type":"user","content":"hello"}'
    >>> [message.text for message in replay([first, again]).messages]
    ['hello']
    """
    kept = list(lines)
    order: MessageOrder[Message] = MessageOrder()
    fields: dict[str, Any] = {}
    for line in kept:
        record = decode_record(line)
        if record is not None:
            _apply(record, order, fields)
    header = header_from(fields)
    if header is None:
        legacy = legacy_conversation(b"\n".join(kept))
        if legacy is not None:
            return legacy
    return Conversation(header, list(order.by_id.values()))


def _apply(record: Record, order: MessageOrder[Message], fields: dict[str, Any]) -> None:
    if isinstance(record, Message):
        order.put(record.id, record)
    elif isinstance(record, Rewind):
        order.rewind(record.message_id)
    else:
        fields.update(record.fields)
        if isinstance(record, Set) and record.messages is not None:
            order.by_id.clear()
        for message in record.messages or ():
            order.put(message.id, message)


def header_from(fields: dict[str, Any]) -> Header | None:
    """Build the header from the fields of all lines; None without a session id or project hash."""
    if not fields.get("sessionId") or not fields.get("projectHash"):
        return None
    return header_of(fields)


def legacy_conversation(content: bytes) -> Conversation | None:
    """Read a file that is one JSON object (up to 0.38); None for any other file."""
    fields, items = _split_legacy(content)
    if "sessionId" not in fields:
        return None
    messages = [message for item in items if (message := decode_legacy_message(item)) is not None]
    return Conversation(header_of(fields), messages)


def _split_legacy(content: bytes) -> tuple[dict[str, Any], Iterator[bytes]]:
    """Return the header's fields, and the JSON of each message."""
    try:
        parts = _parts.decode(content)
        items = _items.decode(parts.pop("messages", b"[]"))
        return {name: msgspec.json.decode(part) for name, part in parts.items()}, map(bytes, items)
    except UNREADABLE:
        value = value_of(content)
    if not isinstance(value, dict):
        return {}, iter(())
    messages = value.get("messages")
    return without_messages(value), map(one_line, messages if isinstance(messages, list) else [])


# JSON strings contain no line breaks, so a line like these is always a real bracket.
_FIRST, _LAST, _LAST_BUT_MORE = b"    {", b"    }", b"    },"
_MESSAGES, _END = b'  "messages": [', b"  ]"


class Block(msgspec.Struct, frozen=True, gc=False):
    """A part of the file: a whole message, or a line around the messages."""

    offset: int
    text: bytes
    is_message: bool


def blocks(lines: Iterable[bytes]) -> Iterator[Block]:
    """Split an indented legacy file into blocks. A truncated message has `is_message` False."""
    inside, offset, start = False, 0, 0
    held: list[bytes] = []
    for line in lines:
        bare = line.rstrip(b"\r\n")
        if held:
            held.append(line)
            if bare in (_LAST, _LAST_BUT_MORE):
                yield Block(start, b"".join(held).rstrip(b",\r\n"), True)
                held = []
                if bare == _LAST_BUT_MORE:
                    yield Block(offset, b",", False)
        elif inside and bare == _FIRST:
            held, start = [line], offset
        else:
            inside = bare == _MESSAGES or (inside and not bare.startswith(_END))
            yield Block(offset, line, False)
        offset += len(line)
    if held:
        yield Block(start, b"".join(held), False)


def skeleton(text: bytes) -> dict[str, Any] | None:
    """Decode the file with `null` for each message; None if the rest is not a session."""
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) and "sessionId" in value else None
