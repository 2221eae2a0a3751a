"""A session file's records to the conversation that they leave (the CLI's loadConversationRecord)."""

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
    "Thread",
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
    """A session as it stands at the end. `header` is None where the CLI would not know the file for a session."""

    header: Header | None
    messages: list[Message]


class Thread(Generic[T]):
    """What stands at each message's place. Every step costs what it adds, however many are taken back."""

    def __init__(self) -> None:
        self.places: dict[str, T] = {}

    def put(self, message_id: str, what: T) -> None:
        """A new message comes last; one whose id is known takes that one's place."""
        self.places[message_id] = what

    def rewind(self, message_id: str) -> None:
        """Take back a message and all behind it; all there is, where its id is not known."""
        if message_id not in self.places:
            self.places.clear()
        while self.places and self.places.popitem()[0] != message_id:
            pass


def replay(lines: Iterable[bytes]) -> Conversation:
    """The conversation in the lines of a session file of any release. Never raises.

    >>> first = b'{"id":"m1","type":"user","content":"helo"}'
    >>> again = b'{"id":"m1","type":"user","content":"hello"}'
    >>> [message.text for message in replay([first, again]).messages]
    ['hello']
    """
    kept = list(lines)
    thread: Thread[Message] = Thread()
    fields: dict[str, Any] = {}
    for line in kept:
        record = decode_record(line)
        if record is not None:
            _apply(record, thread, fields)
    header = header_from(fields)
    if header is None:
        legacy = legacy_conversation(b"\n".join(kept))
        if legacy is not None:
            return legacy
    return Conversation(header, list(thread.places.values()))


def _apply(record: Record, thread: Thread[Message], fields: dict[str, Any]) -> None:
    if isinstance(record, Message):
        thread.put(record.id, record)
    elif isinstance(record, Rewind):
        thread.rewind(record.message_id)
    else:
        fields.update(record.fields)
        if isinstance(record, Set) and record.messages is not None:
            thread.places.clear()
        for message in record.messages or ():
            thread.put(message.id, message)


def header_from(fields: dict[str, Any]) -> Header | None:
    """The header that all lines together give, None where it names no session or no project."""
    if not fields.get("sessionId") or not fields.get("projectHash"):
        return None
    return header_of(fields)


def legacy_conversation(whole: bytes) -> Conversation | None:
    """A file that is one JSON object (to 0.38), None for another one."""
    fields, items = _taken_apart(whole)
    if "sessionId" not in fields:
        return None
    messages = [message for item in items if (message := decode_legacy_message(item)) is not None]
    return Conversation(header_of(fields), messages)


def _taken_apart(whole: bytes) -> tuple[dict[str, Any], Iterator[bytes]]:
    """The header's fields, and each message by itself."""
    try:
        parts = _parts.decode(whole)
        items = _items.decode(parts.pop("messages", b"[]"))
        return {name: msgspec.json.decode(part) for name, part in parts.items()}, map(bytes, items)
    except UNREADABLE:
        value = value_of(whole)
    if not isinstance(value, dict):
        return {}, iter(())
    messages = value.get("messages")
    found = messages if isinstance(messages, list) else []
    return without_messages(value), map(one_line, found)


# A text has no line break in it, so a line like this is always the bracket that it looks like.
_FIRST, _LAST, _LAST_BUT_MORE = b"    {", b"    }", b"    },"
_MESSAGES, _END = b'  "messages": [', b"  ]"


class Block(msgspec.Struct, frozen=True, gc=False):
    """A piece of the file: a whole message, or a line around the messages."""

    offset: int
    text: bytes
    is_message: bool


def blocks(lines: Iterable[bytes]) -> Iterator[Block]:
    """The pieces of a file as the CLI writes it; a message that is cut off is a piece that is none."""
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
    """What stands around the messages, each of which is `null` in it; None where that is no session."""
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) and "sessionId" in value else None
