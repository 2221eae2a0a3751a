"""Summarize a session (title, times, number of messages). Only the start and the end of the session
file are read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import value_of
from geminids.gemini.protocol.journal.records import (
    Header,
    Rewind,
    Set,
    StoredMessage,
    decode_message,
    decode_record,
    update_in,
)
from geminids.gemini.protocol.journal.replay import blocks, legacy_conversation
from geminids.sessions.handover_format import without_handover

__all__ = ["FileSummary", "parse_time", "summarize_file", "title_of"]

_HEAD = 48 * 1024
_TAIL = 16 * 1024
_TITLE = 200
# How the CLI's lines start: a message, a changed time, and the header.
_MESSAGE = b'{"id":"'
_UPDATED = b'{"$set":{"lastUpdated":"'
_HEADER = b'{"sessionId":"'
_USUAL = (_MESSAGE, _UPDATED)
# A field of the header in a file that is one indented JSON object (releases up to 0.38). A JSON
# string contains no line break, so a line that starts like this is never a part of a string.
_FIELD = re.compile(
    rb'^  "(sessionId|projectHash|startTime|lastUpdated|kind|summary)": (".*"),?\r?$', re.MULTILINE
)
_HOOK = re.compile(r"\s*<hook_context>.*?</hook_context>\s*", re.DOTALL)


class FileSummary(msgspec.Struct, frozen=True):
    """A summary of a session file, of which only the start and the end were read.

    A field is None if the value is not in these parts of the file. `damaged` is True if the CLI
    would not accept the file as a session. `resumable` says whether the CLI can resume the session.
    """

    size: int
    damaged: bool
    session_id: str
    kind: str
    last_started: str
    last_updated: str
    started: datetime | None
    updated: datetime
    title: str | None
    messages: int | None
    resumable: bool | None


class _PartialConversation:
    """The part of a conversation that was read from a session file.

    The middle of a long file is not read. `gap` is True if messages from the middle may therefore
    be missing between the messages that were read. Messages are decoded only when needed, so that
    listing sessions is fast.
    """

    def __init__(self) -> None:
        self.gap = False
        self.fields: dict[str, Any] = {}
        self.started: Any = None
        # For each message id: the message, and whether it is after the gap.
        self.thread: dict[bytes, tuple[bytes | StoredMessage, bool]] = {}
        self.prompt: str | None = None

    def take(self, line: bytes) -> None:
        """Add one line of the session file to the conversation. The line can be a message, or a
        change of the header or of earlier messages.
        """
        if line.startswith(_MESSAGE) and line.endswith(b"}"):
            self.put(line[7 : line.find(b'"', 7)], line)
        elif line.startswith(_UPDATED) and len(line) < 64 and line.endswith(b'"}}'):
            self.fields["lastUpdated"] = line[len(_UPDATED) : -3].decode("utf-8", "replace")
        elif (
            line.startswith(_HEADER) and isinstance(value := value_of(line), dict) and "messages" not in value
        ):
            self.set(value if isinstance(value.get("projectHash"), str) else {}, None)
        elif line.startswith(b'{"$set":{') and (update := update_in(line)) is not None:
            self.set(*update)
        elif line:
            self.add(decode_record(line))

    def add(self, record: Any) -> None:
        if isinstance(record, StoredMessage):
            self.put(record.id.encode("utf-8", "surrogatepass"), record)
        elif isinstance(record, Rewind):
            self.rewind(record.message_id.encode("utf-8", "surrogatepass"))
        elif isinstance(record, Set | Header):
            self.set(record.fields, record.messages if isinstance(record, Set) else None)
            for message in (isinstance(record, Header) and record.messages) or ():
                self.add(message)

    def set(self, fields: dict[str, Any], messages: Sequence[msgspec.Raw | StoredMessage] | None) -> None:
        self.fields.update(fields)
        # Keep the first start time: if a session is resumed in the minute of its start, the CLI
        # writes a second header with a new start time.
        self.started = self.started or self.fields.get("startTime")
        if messages is not None:
            self.thread.clear()
            self.gap = False
        for item in messages or ():
            if isinstance(item, StoredMessage):
                self.add(item)
            elif (message := bytes(item)).startswith(_MESSAGE):
                self.put(message[7 : message.find(b'"', 7)], message)
            else:
                self.add(decode_message(message))

    def put(self, message_id: bytes, message: bytes | StoredMessage) -> None:
        self.thread[message_id] = (message, self.gap)
        if self.prompt is None and (isinstance(message, StoredMessage) or b'"user"' in message):
            decoded = _decoded(message)
            if decoded is not None and decoded.is_resumable and decoded.is_prompt:
                self.prompt = title_of(without_handover(decoded.text))

    def rewind(self, message_id: bytes) -> None:
        if message_id in self.thread:
            # If the message is before the gap, the messages in the gap are removed too.
            self.gap = self.thread[message_id][1]
            while self.thread.popitem()[0] != message_id:
                pass
        elif self.gap:
            # The message is probably in the part that was not read: remove all messages after it.
            self.thread = {key: entry for key, entry in self.thread.items() if not entry[1]}
        else:
            self.thread.clear()

    @property
    def resumable(self) -> bool | None:
        messages = (_decoded(message) for message, _ in reversed(self.thread.values()))
        if any(message is not None and message.is_resumable for message in messages):
            return True
        return None if self.gap else False

    @property
    def times(self) -> tuple[str | None, str | None]:
        """The timestamps of the first and the last message. A timestamp is None if there is no
        message.
        """
        ends = [next(order, None) for order in (iter(self.thread.values()), reversed(self.thread.values()))]
        first, last = (_decoded(entry[0]) if entry else None for entry in ends)
        return (first.timestamp if first else None), (last.timestamp if last else None)

    def text(self, name: str) -> str:
        """Return the field `name` of the session's header. Return an empty string if the field is
        missing or is not a string.
        """
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""


def _decoded(message: bytes | StoredMessage) -> StoredMessage | None:
    return decode_message(message) if isinstance(message, bytes) else message


def summarize_file(path: str | Path) -> FileSummary:
    """Return a summary of a session file. At most 64 KiB of the file are read.

    Raises `OSError` if the file cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        if status.st_size <= _HEAD + _TAIL:
            parts = [os.pread(fd, _HEAD + _TAIL, 0)]
        else:
            parts = [os.pread(fd, _TAIL, 0), os.pread(fd, _TAIL, status.st_size - _TAIL)]
        description = _summarize(parts, status)
        if description.title is None and len(parts) > 1:
            # A long text comes before the first prompt: read a larger part of the start.
            parts[0] += os.pread(fd, _HEAD - _TAIL, _TAIL)
            description = _summarize(parts, status)
        return description
    finally:
        os.close(fd)


def _summarize(parts: list[bytes], status: os.stat_result) -> FileSummary:
    seen = _PartialConversation()
    for number, lines in enumerate(_whole_lines(parts)):
        seen.gap = number > 0
        if len(parts) > 1:
            lines = _take_to_prompt(lines, seen) if number == 0 else _last(lines)
        for line in lines:
            seen.take(line)
    damaged = not (seen.fields.get("sessionId") and seen.fields.get("projectHash"))
    if damaged and (old := _legacy(parts)) is not None:
        seen, damaged = old, False
    first, last = seen.times
    changed = [time for time in (parse_time(seen.text("lastUpdated")), parse_time(last)) if time is not None]
    return FileSummary(
        size=status.st_size,
        damaged=damaged,
        session_id="" if damaged else seen.text("sessionId"),
        kind=seen.text("kind"),
        last_started=seen.text("startTime"),
        last_updated=seen.text("lastUpdated"),
        started=parse_time(seen.started) or parse_time(first),
        updated=max(changed) if changed else datetime.fromtimestamp(status.st_mtime, UTC),
        title=title_of(seen.text("summary")) or seen.prompt,
        messages=None if seen.gap else len(seen.thread),
        resumable=False if damaged else seen.resumable,
    )


def _take_to_prompt(lines: list[bytes], seen: _PartialConversation) -> list[bytes]:
    """Add the lines to `seen`, up to and including the first prompt. Return those of the later
    lines that the caller must also add.

    After the prompt, messages and changes of `lastUpdated` are left out: the summary of a long file
    does not need them.
    """
    for number, line in enumerate(lines, 1):
        seen.take(line)
        if seen.prompt:
            return [other for other in lines[number:] if not other.startswith(_USUAL)]
    return []


def _last(lines: list[bytes]) -> list[bytes]:
    """Return the lines that are needed for the summary. `lines` are the lines at the end of the
    file.

    If every line is a message or a change of `lastUpdated`, return the last eight lines. Otherwise
    return all lines, because a line of another kind may change earlier messages.
    """
    has_unusual = any(not line.startswith(_USUAL) for line in lines if line)
    return lines if has_unusual else lines[-8:]


def _whole_lines(parts: list[bytes]) -> Iterator[list[bytes]]:
    if len(parts) == 1:
        yield parts[0].split(b"\n")
        return
    head, tail = parts
    yield head.split(b"\n")[:-1]
    yield tail.split(b"\n")[1:]


def _legacy(parts: list[bytes]) -> _PartialConversation | None:
    """Read a session file in the format of CLI releases up to 0.38: the file is one JSON object.

    `parts` is the whole file, or its start and its end. Return the part of the conversation that
    is in `parts`. Return None if the file does not have this format.
    """
    old = _PartialConversation()
    if len(parts) == 1:
        whole = legacy_conversation(parts[0])
        if whole is None or whole.header is None:
            return None
        old.set(whole.header.fields, None)
        for message in whole.messages:
            old.add(message)
        return old
    fields = {name.decode(): value_of(value) for part in parts for name, value in _FIELD.findall(part)}
    old.set(fields, None)
    for number, messages in enumerate((_messages(parts[0]), _messages(b'  "messages": [\n' + parts[1]))):
        old.gap = number > 0
        for message in messages:
            old.add(message)
    return old if old.fields.get("sessionId") else None


def _messages(text: bytes) -> Iterator[StoredMessage]:
    lines: Iterable[bytes] = text.splitlines(keepends=True)
    for block in blocks(lines):
        if block.is_message and isinstance(record := decode_record(block.text), StoredMessage):
            yield record


def title_of(text: str) -> str | None:
    """Make a session title from a text: one line of at most 200 characters. Return None if the text
    is empty.
    """
    short = " ".join(_HOOK.sub(" ", text[: _TITLE * 20]).split())
    return (short if len(short) <= _TITLE else short[: _TITLE - 1] + "…") or None


def parse_time(text: Any) -> datetime | None:
    """Convert a timestamp from a session file to a `datetime` in UTC. Return None if the value is
    not a timestamp.
    """
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
