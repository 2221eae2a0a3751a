"""Decode the records of session files. A record is one line
(core/src/services/chatRecordingTypes.ts of Gemini CLI).

Since 0.39, a session file is JSON Lines: a header, messages, and changes of the header and the
messages. Up to 0.38, it is one JSON object with all messages. Here, such a file is called a legacy
file.
"""

from __future__ import annotations

from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import UNREADABLE, one_line, struct_of, value_of
from geminids.gemini.protocol.journal.message import (
    NO_RAW,
    StoredMessage,
    StoredThought,
    StoredTokens,
    StoredToolCall,
)

__all__ = [
    "Header",
    "Record",
    "Rewind",
    "Set",
    "StoredMessage",
    "StoredThought",
    "StoredTokens",
    "StoredToolCall",
    "decode_legacy_message",
    "decode_message",
    "decode_record",
    "header_of",
    "may_be_record",
    "message_of",
    "record_of",
    "update_in",
    "without_messages",
]


class Header(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The header of a session file, which contains the metadata of the session.

    `messages` is only set for a legacy file, which is one JSON object with all messages. `fields`
    contains all fields of the JSON object except `messages`.
    """

    session_id: str = ""
    project_hash: str = ""
    start_time: str = ""
    last_updated: str = ""
    kind: str | None = None
    summary: str | None = None
    directories: list[str] = []
    memory_scratchpad: Any = None
    messages: list[StoredMessage] | None = None
    fields: dict[str, Any] = msgspec.field(default_factory=dict, name="$fields")


class Set(msgspec.Struct, frozen=True, gc=False):
    """The record `$set` of a session file. It changes fields of the header.

    If `messages` is not None, these messages replace the whole conversation. Such a record is
    called a checkpoint.
    """

    fields: dict[str, Any]
    messages: list[StoredMessage] | None = None


class Rewind(msgspec.Struct, frozen=True, gc=False):
    """The record `$rewindTo` of a session file. It removes the message with the id `message_id` and
    all later messages from the conversation.

    If no message has this id, the record removes all messages.
    """

    message_id: str


Record = Header | StoredMessage | Set | Rewind

_message: msgspec.json.Decoder[StoredMessage] = msgspec.json.Decoder(StoredMessage)
_update: msgspec.json.Decoder[dict[str, dict[str, msgspec.Raw]]] = msgspec.json.Decoder(
    dict[str, dict[str, msgspec.Raw]]
)
_items: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])
_attach = msgspec.structs.force_setattr


def decode_record(line: bytes) -> Record | None:
    """Decode one line of a session file. Return None if the line is not a record. Never raises.

    If a legacy file (one JSON object with all messages) is written on one line, it is decoded as a
    header with messages.

    >>> decode_record(b'{"id":"m1","type":"user","content":"hi","timestamp":""}').text
    'hi'
    """
    if line.startswith(b'{"$set":{') and (update := update_in(line)) is not None:
        return _set_of(*update)
    if not line.startswith(b"{") and not may_be_record(line):
        return None
    if (message := _plain_message(line)) is not None:
        return message
    return record_of(value_of(line)) if may_be_record(line) else None


def may_be_record(line: bytes) -> bool:
    """Return whether a line looks like a JSON object. This check is quick; the line is
    not decoded.
    """
    bare = line.strip()
    return bare.endswith(b"}") and bare.startswith((b"{", b"\xef\xbb\xbf"))


def update_in(line: bytes) -> tuple[dict[str, Any], list[msgspec.Raw] | None] | None:
    """Decode a `$set` record, which changes fields of the header or replaces all messages. Return
    the changed fields, and the new messages as undecoded JSON.

    If the record does not replace the messages, the second value is None. If the line is not a
    `$set` record, return None in place of both values.
    """
    try:
        record = _update.decode(line)
        changes = record.pop("$set")
        if record:
            return None
        messages = changes.pop("messages", None)
        items = None if messages is None else _items.decode(messages)
        return {name: msgspec.json.decode(raw) for name, raw in changes.items()}, items
    except (*UNREADABLE, KeyError):
        return None


def _set_of(fields: dict[str, Any], items: list[msgspec.Raw] | None) -> Set:
    if items is None:
        return Set(fields)
    return Set(fields, [message for item in items if (message := decode_message(bytes(item))) is not None])


def decode_message(text: bytes) -> StoredMessage | None:
    """Decode the JSON of one message of a conversation. Return None if the JSON is not a message
    with an id.
    """
    if (message := _plain_message(_on_one_line(text))) is not None:
        return message
    value = value_of(text)
    return message_of(value) if isinstance(value, dict) and isinstance(value.get("id"), str) else None


def decode_legacy_message(text: bytes) -> StoredMessage | None:
    """Decode the JSON of one message of a legacy file (a session file of CLI releases up to 0.38,
    which is one JSON object). Return None if the text is not a JSON object.

    In a legacy file, a message may have no id. Then the `id` of the result is empty.
    """
    if (message := decode_message(text)) is not None:
        return message
    value = value_of(text)
    return message_of(value) if isinstance(value, dict) else None


def _on_one_line(text: bytes) -> bytes:
    try:
        return msgspec.json.format(text, indent=-1) if b"\n" in text else text
    except UNREADABLE:
        return text


def _plain_message(line: bytes) -> StoredMessage | None:
    try:
        message = _message.decode(line)
    except UNREADABLE:
        return None
    if message.raw is not NO_RAW:
        return None
    _attach(message, "raw", line.strip())
    return message


def record_of(value: Any) -> Record | None:
    """Convert a decoded line of a session file to a record. Return None if the value is not a
    record.

    The kinds of records are checked in the same order as in the CLI.
    """
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("$rewindTo"), str):
        return Rewind(value["$rewindTo"])
    if isinstance(value.get("id"), str):
        return message_of(value)
    changes = value.get("$set")
    if isinstance(changes, dict):
        return Set(without_messages(changes), messages_in(changes))
    if isinstance(changes, list):
        return Set({})
    if isinstance(value.get("sessionId"), str) and isinstance(value.get("projectHash"), str):
        return header_of(value)
    return None


def message_of(value: dict[str, Any]) -> StoredMessage:
    """Convert a JSON object to a message. A field whose value has the wrong type gets its default
    value.
    """
    raw = one_line(value)
    try:
        message = _message.decode(raw)
        _attach(message, "raw", raw)
        return message
    except UNREADABLE:
        stored_id = value.get("id")
        return struct_of(StoredMessage, value, raw=raw, id=stored_id if isinstance(stored_id, str) else "")


def messages_in(value: dict[str, Any]) -> list[StoredMessage] | None:
    """Return the messages in the field `messages` of a JSON object. Return None if this field is
    missing or not a list.

    Messages without an id are left out.
    """
    messages = value.get("messages")
    if not isinstance(messages, list):
        return None
    return [
        message_of(item) for item in messages if isinstance(item, dict) and isinstance(item.get("id"), str)
    ]


def without_messages(value: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a JSON object without the field `messages`."""
    return {name: inner for name, inner in value.items() if name != "messages"}


def header_of(value: dict[str, Any]) -> Header:
    """Convert a JSON object to the header of a session. If the object contains messages, they
    become part of the header.
    """
    fields = without_messages(value)
    return struct_of(Header, fields, messages=messages_in(value), fields=fields)
