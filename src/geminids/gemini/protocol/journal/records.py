"""Decode the records of session files (core/src/services/chatRecordingTypes.ts)."""

from __future__ import annotations

from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import UNREADABLE, one_line, struct_of, value_of
from geminids.gemini.protocol.journal.message import NO_RAW, Message, Thought, Tokens, ToolCall

__all__ = [
    "Header",
    "Message",
    "Record",
    "Rewind",
    "Set",
    "Thought",
    "Tokens",
    "ToolCall",
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
    """The metadata of a session. A legacy file on one line is a header with all messages."""

    session_id: str = ""
    project_hash: str = ""
    start_time: str = ""
    last_updated: str = ""
    kind: str | None = None
    summary: str | None = None
    directories: list[str] = []
    memory_scratchpad: Any = None
    messages: list[Message] | None = None
    fields: dict[str, Any] = msgspec.field(default_factory=dict, name="$fields")


class Set(msgspec.Struct, frozen=True, gc=False):
    """`$set`: changes fields of the header; `messages` replaces the whole conversation."""

    fields: dict[str, Any]
    messages: list[Message] | None = None


class Rewind(msgspec.Struct, frozen=True, gc=False):
    """`$rewindTo`: removes this message and all after it; all messages if the id is unknown."""

    message_id: str


Record = Header | Message | Set | Rewind

_message: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_update: msgspec.json.Decoder[dict[str, dict[str, msgspec.Raw]]] = msgspec.json.Decoder(
    dict[str, dict[str, msgspec.Raw]]
)
_items: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])
_attach = msgspec.structs.force_setattr


def decode_record(line: bytes) -> Record | None:
    """Decode a line of a `.jsonl` session file, or a legacy file that is one line.

    Returns None if the line is not a record. Never raises.

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
    """Quick check before decoding: most lines of a legacy file cannot be a record."""
    bare = line.strip()
    return bare.endswith(b"}") and bare.startswith((b"{", b"\xef\xbb\xbf"))


def update_in(line: bytes) -> tuple[dict[str, Any], list[msgspec.Raw] | None] | None:
    """Return the fields and the undecoded messages of a `$set` line; None for any other line."""
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


def decode_message(text: bytes) -> Message | None:
    """Decode a message on any number of lines; None if it has no id."""
    if (message := _plain_message(_on_one_line(text))) is not None:
        return message
    value = value_of(text)
    return message_of(value) if isinstance(value, dict) and isinstance(value.get("id"), str) else None


def decode_legacy_message(text: bytes) -> Message | None:
    """Decode a message of a legacy file, which needs no id; None if it is not an object."""
    if (message := decode_message(text)) is not None:
        return message
    value = value_of(text)
    return message_of(value) if isinstance(value, dict) else None


def _on_one_line(text: bytes) -> bytes:
    try:
        return msgspec.json.format(text, indent=-1) if b"\n" in text else text
    except UNREADABLE:
        return text


def _plain_message(line: bytes) -> Message | None:
    try:
        message = _message.decode(line)
    except UNREADABLE:
        return None
    if message.raw is not NO_RAW:
        return None
    _attach(message, "raw", line.strip())
    return message


def record_of(value: Any) -> Record | None:
    """Classify a JSON value, checking in the same order as the CLI."""
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


def message_of(value: dict[str, Any]) -> Message:
    """Convert a JSON object to a message, even if fields have wrong types."""
    raw = one_line(value)
    try:
        message = _message.decode(raw)
        _attach(message, "raw", raw)
        return message
    except UNREADABLE:
        return struct_of(Message, {"id": "", **value}, raw=raw)


def messages_in(value: dict[str, Any]) -> list[Message] | None:
    """Return the messages of a checkpoint or a whole conversation; None if it has no list."""
    messages = value.get("messages")
    if not isinstance(messages, list):
        return None
    return [
        message_of(item) for item in messages if isinstance(item, dict) and isinstance(item.get("id"), str)
    ]


def without_messages(value: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a header without its messages."""
    return {name: inner for name, inner in value.items() if name != "messages"}


def header_of(value: dict[str, Any]) -> Header:
    """Convert a JSON object to a header, with its messages."""
    fields = without_messages(value)
    return struct_of(Header, fields, messages=messages_in(value), fields=fields)
