"""Find all messages in the bytes of a damaged session file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import value_of
from geminids.gemini.protocol.journal.records import (
    Header,
    Record,
    Rewind,
    Set,
    StoredMessage,
    decode_record,
    message_of,
)
from geminids.gemini.protocol.journal.replay import legacy_conversation

__all__ = ["LostPiece", "Salvaged", "read_damaged"]

# The start of a record, or of a part of a record. It does not match inside a JSON string, because
# quotes are escaped there.
_START = re.compile(r'\{\s*"(?:id|sessionId|\$set|\$rewindTo)"\s*:')
_FIELD = re.compile(r'"(sessionId|projectHash|startTime)"\s*:\s*"([^"\\]{1,300})"')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]', re.DOTALL)
_BYTE = re.compile(r"\(byte (\d+)\)")
_TYPES = ("user", "gemini", "info", "error", "warning")
_MAX_TRIES = 2000
_MAX_DEPTH = 200
_FILLER = b"\x00 \t\r\n,[]{}"
# With this encoding, one character is one byte, so positions in the text are positions in the file.
_AS_BYTES = "latin-1"


class LostPiece(msgspec.Struct, frozen=True):
    """A part of a session file that cannot be read as a complete record. `offset` is its position
    in the file in bytes, and `size` its length.
    """

    offset: int
    size: int


class Salvaged:
    """Collects the messages that are recovered from session files, in the order in which they first
    appear.

    If the files contain a message several times, the most complete version is kept. `partial`
    contains the ids of messages whose end is missing. `rewound` contains the ids of messages that
    the user removed with `/rewind`. `lost` lists the parts of the files that could not be read.
    """

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.messages: dict[str, StoredMessage] = {}
        self.partial: set[str] = set()
        self.rewound: set[str] = set()
        self.lost: list[LostPiece] = []
        # The ids of messages that are known only from a checkpoint (a record with the whole
        # conversation). There, they have no thoughts, tokens or results.
        self._listed: set[str] = set()

    def add(self, record: Record) -> None:
        """Add the messages in one record (line) of a session file. If the record removes messages,
        mark these messages as removed.
        """
        if isinstance(record, StoredMessage):
            self._put(record)
        elif isinstance(record, Rewind):
            self._rewind(record.message_id)
        else:
            self.fields.update(record.fields)
            for message in record.messages or ():
                if self._is_incomplete(message.id):
                    self._put(message)
                    self._listed.add(message.id)

    def add_partial(self, message: StoredMessage) -> None:
        """Add a message whose end is missing, unless the message is already known."""
        if message.id not in self.messages and message.is_resumable:
            self._put(message)
            self.partial.add(message.id)

    def _is_incomplete(self, message_id: str) -> bool:
        return message_id not in self.messages or message_id in self._listed or message_id in self.partial

    def _put(self, message: StoredMessage) -> None:
        if message.id:
            self.messages[message.id] = message
            for marks in (self._listed, self.partial, self.rewound):
                marks.discard(message.id)

    def _rewind(self, message_id: str) -> None:
        """Mark the message `message_id` and all later messages as removed by the user's command
        `/rewind`.

        If there is no message with this id, do nothing: the message may be in the damaged part of
        the file.
        """
        if message_id in self.messages:
            for known in reversed(self.messages):
                self.rewound.add(known)
                if known == message_id:
                    return


def read_damaged(data: bytes, salvaged: Salvaged) -> None:
    """Find all messages in `data`, the bytes of a session file, and add them to `salvaged`.

    Incomplete lines, and lines with several records, are searched too. This function does not
    raise.
    """
    whole = legacy_conversation(data)
    if whole is not None and whole.header is not None:
        salvaged.add(whole.header)
        for message in whole.messages:
            salvaged.add(message)
        return
    torn: list[bytes] = []
    offset = torn_at = 0
    for line in data.split(b"\n"):
        record = decode_record(line) if line else None
        if record is None:
            torn_at = torn_at if torn else offset
            torn.append(line)
        else:
            _take_torn(b"\n".join(torn), torn_at, salvaged)
            torn.clear()
            salvaged.add(record)
        offset += len(line) + 1
    _take_torn(b"\n".join(torn), torn_at, salvaged)


def _take_torn(data: bytes, offset: int, salvaged: Salvaged) -> None:
    """Find the complete records in `data`, lines of a session file that cannot be decoded as whole
    records. Add them to `salvaged`.

    Such a line can contain several records, or an incomplete record before a complete one. A record
    can also be spread over several lines. `offset` is the position of `data` in the file.
    """
    if not data.strip(_FILLER):
        return
    text = data.decode(_AS_BYTES)
    for name, value in _FIELD.findall(text):
        salvaged.fields.setdefault(name, value.encode(_AS_BYTES).decode("utf-8", "replace"))
    done = 0
    for start, end in _objects(text):
        record = decode_record(data[start:end])
        if isinstance(record, Set | Header | Rewind) or (
            isinstance(record, StoredMessage) and record.type in _TYPES
        ):
            _take_partial(data[done:start], offset + done, salvaged)
            if not isinstance(record, Rewind):  # ignore the rewind: the CLI could not read it either
                salvaged.add(record)
            done = end
    _take_partial(data[done:], offset + done, salvaged)


def _objects(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each complete JSON object in `text` that could be a record.

    If such an object contains other objects, these are not yielded.
    """
    decoder = json.JSONDecoder(strict=False)
    at = failed = 0
    while failed < _MAX_TRIES and (match := _START.search(text, at)):
        try:
            _, at = decoder.raw_decode(text, match.start())
            yield match.start(), at
        except (ValueError, RecursionError):
            failed += 1
            at = match.start() + 1


def _take_partial(data: bytes, offset: int, salvaged: Salvaged) -> None:
    """Look in `data` for one message whose end is missing. If there is one, add the part of the
    message that can be parsed to `salvaged`.

    `data` is a part of the file that contains no complete record, and `offset` is its position in
    the file. So the position and the length of `data` are always added to `salvaged.lost`, even if
    a part of a message was found. Nothing is added if `data` contains only whitespace, NUL bytes,
    commas and brackets.
    """
    if not data.strip(_FILLER):
        return
    salvaged.lost.append(LostPiece(offset, len(data)))
    text = data.decode(_AS_BYTES)
    for number, match in enumerate(_START.finditer(text)):
        value = _closed(data[match.start() :])
        if isinstance(value, dict) and isinstance(value.get("id"), str) and value.get("type") in _TYPES:
            calls = value.get("toolCalls")
            if isinstance(calls, list):
                # The API rejects a call without its result.
                value["toolCalls"] = [call for call in calls if isinstance(call, dict) and call.get("result")]
            salvaged.add_partial(message_of(value))
            return
        if number == 10:
            return


def _closed(data: bytes) -> Any:
    """Parse as much as possible of a JSON object whose end is missing. Return None if nothing can
    be parsed.

    `data` is cut after its last complete value, or inside a string that has no end. Then the
    missing quotes and brackets are added, so that the result is valid JSON.
    """
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
    # Positions where the text can be truncated, and the brackets that complete the value there.
    cuts: list[tuple[int, str]] = [(0, "")]
    end = 0
    for match in _TOKEN.finditer(text):
        end, token = match.end(), match.group()[0]
        if token in "{[":
            stack.append("}" if token == "{" else "]")
            if len(stack) > _MAX_DEPTH:
                return None
        elif token in "}]" and stack:
            stack.pop()
        if token != '"':
            cuts.append((match.start() if token == "," else end, "".join(reversed(stack))))
            del cuts[:-8]
    if (quote := text.find('"', end)) >= 0:
        # The text may end inside an escape sequence, which has at most six characters.
        ends = range(max(quote + 1, len(text) - 6), len(text) + 1)
        cuts += [(at, '"' + "".join(reversed(stack))) for at in ends]
    for at, ending in reversed(cuts):
        value = value_of(data[:at] + ending.encode())
        if isinstance(value, dict):
            return value
    return None
