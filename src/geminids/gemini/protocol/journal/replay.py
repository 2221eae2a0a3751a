"""Rebuild a conversation from the lines of a session file, in the same way as the CLI's
function `loadConversationRecord`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from geminids.gemini.protocol.journal.lenient import UNREADABLE, one_line, value_of
from geminids.gemini.protocol.journal.records import (
    Header,
    Record,
    Rewind,
    Set,
    StoredMessage,
    decode_legacy_message,
    decode_record,
    header_of,
    without_messages,
)

__all__ = [
    "Block",
    "MessageOrder",
    "StoredConversation",
    "blocks",
    "header_from",
    "legacy_conversation",
    "replay",
    "skeleton",
]

T = TypeVar("T")
_parts: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


class StoredConversation(msgspec.Struct, frozen=True):
    """A conversation that was rebuilt from all lines of its session file.

    `header` is None if the CLI would not accept the file as a session.
    """

    header: Header | None
    messages: list[StoredMessage]


class MessageOrder(Generic[T]):
    """Stores the messages of a conversation by id, in the order of the conversation. The methods
    add, replace and remove messages.

    The values in `by_id` are the messages themselves, or their positions in a file.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, T] = {}
        self.is_resumed = False
        """Whether the session was resumed, and no message after it (a checkpoint does not count as a
        message)."""
        self._times: dict[str, str] = {}
        self._at_resume: dict[str, T] = {}
        self._omitted: set[str] = set()

    def resume(self) -> None:
        """Record that the session id was read. If the CLI resumes a session, it writes the id once
        more, in a second header or in a change of the header.
        """
        if self.by_id:
            self.is_resumed = True
            self._at_resume, self._omitted = dict(self.by_id), set()

    def put(self, message_id: str, value: T, at: str) -> None:
        """Add a message to the end of the conversation. `at` is its timestamp.

        If the conversation already has a message with this id, replace that message at its
        position.
        """
        self.is_resumed = False
        self.by_id[message_id] = value
        self._times[message_id] = at
        if message_id in self._at_resume:
            self._at_resume[message_id] = value

    def checkpoint(self, messages: Sequence[tuple[str, T, str]]) -> None:
        """Replace the conversation with the messages of a checkpoint (a record with all messages).
        `messages` contains the id, the value and the timestamp of each message.

        After a resume, the CLI's checkpoints contain poor copies of the earlier messages: without
        thoughts, tokens and models, with the time of the resume, and without the prompts that begin
        with a slash. If the session was just resumed, a checkpoint without a new message is
        ignored. In later ones, for example after a failed turn, a poor copy is replaced with the
        message itself, and a message that the ignored checkpoint omitted is kept.

        A message is new if its id is unknown. But a message `<id>_response` is not new if the
        message `<id>` is known: it only repeats the results of that message's tool calls.
        """
        ids = [message_id for message_id, _, _ in messages]
        if self.is_resumed and messages and all(_is_in(self.by_id, message_id) for message_id in ids):
            self._omitted = self.by_id.keys() - set(ids)
            return
        before = self._omitted_before()
        self.by_id.clear()
        for message_id, value, at in messages:
            known = message_id if message_id in self._at_resume else message_id.removesuffix("_response")
            if known not in self._at_resume or at == self._times[known]:
                self.by_id[message_id] = value
                self._times[message_id] = at
            elif known == message_id:
                for omitted in before.get(message_id, ()):
                    self.by_id[omitted] = self._at_resume[omitted]
                self.by_id[message_id] = self._at_resume[message_id]

    def _omitted_before(self) -> dict[str, list[str]]:
        """Return the omitted messages, by the id of the message that followed them."""
        before: dict[str, list[str]] = {}
        omitted: list[str] = []
        for message_id in self._at_resume if self._omitted else ():
            if message_id in self._omitted:
                omitted.append(message_id)
            elif omitted:
                before[message_id], omitted = omitted, []
        return before

    def rewind(self, message_id: str) -> None:
        """Remove the message with this id and all later messages. If there is no such message,
        remove all messages.
        """
        if message_id not in self.by_id:
            self.by_id.clear()
        while self.by_id and self.by_id.popitem()[0] != message_id:
            pass


def _is_in(known: Container[str], message_id: str) -> bool:
    return message_id in known or message_id.removesuffix("_response") in known


def replay(lines: Iterable[bytes]) -> StoredConversation:
    """Rebuild the conversation from the lines of a session file of any CLI release. Never raises.

    In the example, the second line replaces the message of the first line, because both have the
    same id.

    >>> first = b'{"id":"m1","type":"user","content":"helo"}'
    >>> again = b'{"id":"m1","type":"user","content":"hello"}'
    >>> [message.text for message in replay([first, again]).messages]
    ['hello']
    """
    kept = list(lines)
    order: MessageOrder[StoredMessage] = MessageOrder()
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
    return StoredConversation(header, list(order.by_id.values()))


def _apply(record: Record, order: MessageOrder[StoredMessage], fields: dict[str, Any]) -> None:
    if isinstance(record, StoredMessage):
        order.put(record.id, record, record.timestamp)
    elif isinstance(record, Rewind):
        order.rewind(record.message_id)
    else:
        if "sessionId" in record.fields:
            order.resume()
        fields.update(record.fields)
        messages = [(message.id, message, message.timestamp) for message in record.messages or ()]
        if isinstance(record, Set) and record.messages is not None:
            order.checkpoint(messages)
        else:
            for message in messages:
                order.put(*message)


def header_from(fields: dict[str, Any]) -> Header | None:
    """Build the header of a session. `fields` contains the header fields from all lines of the
    session file.

    Return None if the session id or the project hash is missing.
    """
    if not fields.get("sessionId") or not fields.get("projectHash"):
        return None
    return header_of(fields)


def legacy_conversation(content: bytes) -> StoredConversation | None:
    """Read the conversation from the content of a session file that is one JSON object (CLI
    releases up to 0.38).

    Return None if the content has another format.
    """
    fields, items = _split_legacy(content)
    if "sessionId" not in fields:
        return None
    messages = [message for item in items if (message := decode_legacy_message(item)) is not None]
    return StoredConversation(header_of(fields), messages)


def _split_legacy(content: bytes) -> tuple[dict[str, Any], Iterator[bytes]]:
    """Split the content of a session file that is one JSON object. Return the fields of its header,
    and the JSON of each message. If the content is not a JSON object, return no fields and no
    messages.
    """
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


# The lines with brackets in a session file that is one indented JSON object. A JSON string contains
# no line breaks, so such a line is never a part of a string.
_FIRST, _LAST, _LAST_BUT_MORE = b"    {", b"    }", b"    },"
_MESSAGES, _END = b'  "messages": [', b"  ]"


class Block(msgspec.Struct, frozen=True, gc=False):
    """A part of a session file: the JSON of one message, or one line outside the messages. The whole
    file is one indented JSON object.

    `offset` is the position of the part in the file, in bytes.
    """

    offset: int
    text: bytes
    is_message: bool


def blocks(lines: Iterable[bytes]) -> Iterator[Block]:
    """Split a session file that is one indented JSON object into parts. Each message is one part.
    Each line outside the messages is one part too.

    If the last message is truncated, it is yielded with `is_message` False.
    """
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
    """Decode the text of a session file in which each message was replaced with `null`. Return the
    JSON object, which contains the header of the session.

    Return None if the text is not a JSON object with a `sessionId`.
    """
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) and "sessionId" in value else None
