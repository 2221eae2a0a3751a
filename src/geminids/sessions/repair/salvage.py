"""Every message that is still in the bytes of a session file, whatever has become of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import value_of
from geminids.gemini.protocol.journal.records import (
    Header,
    Message,
    Record,
    Rewind,
    Set,
    decode_record,
    message_of,
)
from geminids.gemini.protocol.journal.replay import legacy_conversation

__all__ = ["Haul", "LostPiece", "salvage"]

# In a text these have a backslash before each quote: unescaped, a record begins there, or a part of one.
_START = re.compile(r'\{\s*"(?:id|sessionId|\$set|\$rewindTo)"\s*:')
_FIELD = re.compile(r'"(sessionId|projectHash|startTime)"\s*:\s*"([^"\\]{1,300})"')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]', re.DOTALL)
_BYTE = re.compile(r"\(byte (\d+)\)")
_TYPES = ("user", "gemini", "info", "error", "warning")
_TRIES = 2000
_DEEPEST = 200
_NOTHING = b"\x00 \t\r\n,[]{}"
# One character a byte: the offsets are those of the file.
_AS_BYTES = "latin-1"


class LostPiece(msgspec.Struct, frozen=True):
    """Bytes that are no whole record: where they begin, and how many they are."""

    offset: int
    size: int


class Haul:
    """What was found: messages in the order in which they first appear, each in its fullest form."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.messages: dict[str, Message] = {}
        self.partial: set[str] = set()
        self.rewound: set[str] = set()
        self.lost: list[LostPiece] = []
        # Known from a checkpoint alone, where a message has neither thoughts nor tokens nor tool results.
        self._listed: set[str] = set()

    def add(self, record: Record) -> None:
        """Take what a record has."""
        if isinstance(record, Message):
            self._put(record)
        elif isinstance(record, Rewind):
            self._rewind(record.message_id)
        else:
            self.fields.update(record.fields)
            for message in record.messages or ():
                if self._is_poor(message.id):
                    self._put(message)
                    self._listed.add(message.id)

    def add_partial(self, message: Message) -> None:
        """A message without its end: kept where no better one is known."""
        if message.id not in self.messages and message.is_resumable:
            self._put(message)
            self.partial.add(message.id)

    def _is_poor(self, message_id: str) -> bool:
        return message_id not in self.messages or message_id in self._listed or message_id in self.partial

    def _put(self, message: Message) -> None:
        if message.id:
            self.messages[message.id] = message
            for marks in (self._listed, self.partial, self.rewound):
                marks.discard(message.id)

    def _rewind(self, message_id: str) -> None:
        """Taken back by the user. A rewind to what was never there is damage, and takes nothing back."""
        if message_id in self.messages:
            for known in reversed(self.messages):
                self.rewound.add(known)
                if known == message_id:
                    return


def salvage(data: bytes, haul: Haul) -> None:
    """Gather what is in a session file of any generation, checkpoints and torn lines included. Never raises."""
    whole = legacy_conversation(data)
    if whole is not None and whole.header is not None:
        haul.add(whole.header)
        for message in whole.messages:
            haul.add(message)
        return
    torn: list[bytes] = []
    offset = began = 0
    for line in data.split(b"\n"):
        record = decode_record(line) if line else None
        if record is None:
            began = began if torn else offset
            torn.append(line)
        else:
            _take_torn(b"\n".join(torn), began, haul)
            torn.clear()
            haul.add(record)
        offset += len(line) + 1
    _take_torn(b"\n".join(torn), began, haul)


def _take_torn(data: bytes, offset: int, haul: Haul) -> None:
    """Lines that are no records: whole ones stand in them, glued together, behind a torn one, or indented."""
    if not data.strip(_NOTHING):
        return
    text = data.decode(_AS_BYTES)
    for name, value in _FIELD.findall(text):
        haul.fields.setdefault(name, value.encode(_AS_BYTES).decode("utf-8", "replace"))
    done = 0
    for start, end in _objects(text):
        record = decode_record(data[start:end])
        if isinstance(record, Set | Header | Rewind) or (
            isinstance(record, Message) and record.type in _TYPES
        ):
            _take_begun(data[done:start], offset + done, haul)
            if not isinstance(record, Rewind):  # the CLI has not seen it: nothing was taken back
                haul.add(record)
            done = end
    _take_begun(data[done:], offset + done, haul)


def _objects(text: str) -> Iterator[tuple[int, int]]:
    """Where whole JSON objects stand that could be records, none within another."""
    decoder = json.JSONDecoder(strict=False)
    at = failed = 0
    while failed < _TRIES and (match := _START.search(text, at)):
        try:
            _, at = decoder.raw_decode(text, match.start())
            yield match.start(), at
        except (ValueError, RecursionError):
            failed += 1
            at = match.start() + 1


def _take_begun(data: bytes, offset: int, haul: Haul) -> None:
    """The beginning of a record: of a message, as much as can be closed."""
    if not data.strip(_NOTHING):
        return
    haul.lost.append(LostPiece(offset, len(data)))
    text = data.decode(_AS_BYTES)
    for number, match in enumerate(_START.finditer(text)):
        value = _closed(data[match.start() :])
        if isinstance(value, dict) and isinstance(value.get("id"), str) and value.get("type") in _TYPES:
            calls = value.get("toolCalls")
            if isinstance(calls, list):
                # A call without its result is one that the API does not take.
                value["toolCalls"] = [call for call in calls if isinstance(call, dict) and call.get("result")]
            haul.add_partial(message_of(value))
            return
        if number == 10:
            return


def _closed(data: bytes) -> Any:
    """The JSON value that a text begins, ended behind its last whole member or within a string; or None."""
    value = _ended(data)
    if value is not None:
        return value
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        broken = _BYTE.search(str(error))
        return _ended(data[: int(broken.group(1))]) if broken else None
    except (ValueError, RecursionError):
        pass
    return None


def _ended(data: bytes) -> Any:
    text = data.decode(_AS_BYTES)
    stack: list[str] = []
    # Where it can be cut, and what closes it there.
    cuts: list[tuple[int, str]] = [(0, "")]
    end = 0
    for match in _TOKEN.finditer(text):
        end, token = match.end(), match.group()[0]
        if token in "{[":
            stack.append("}" if token == "{" else "]")
            if len(stack) > _DEEPEST:
                return None
        elif token in "}]" and stack:
            stack.pop()
        if token != '"':
            cuts.append((match.start() if token == "," else end, "".join(reversed(stack))))
            del cuts[:-8]
    if (quote := text.find('"', end)) >= 0:
        # An escape that broke off is at most six characters long.
        ends = range(max(quote + 1, len(text) - 6), len(text) + 1)
        cuts += [(at, '"' + "".join(reversed(stack))) for at in ends]
    for at, ending in reversed(cuts):
        value = value_of(data[:at] + ending.encode())
        if isinstance(value, dict):
            return value
    return None
