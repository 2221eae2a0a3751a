"""Repair the order of messages in sessions that were recorded over ACP, the CLI's JSON-RPC
protocol.

In the file of such a session, the tool calls of several answers of the model can be in one message.
This module moves each tool call to the answer in which the model made it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from geminids.errors import SessionError
from geminids.gemini.protocol.journal.records import StoredMessage, StoredToolCall, message_of
from geminids.gemini.protocol.journal.replay import replay
from geminids.sessions.loader import read_file
from geminids.sessions.repair.write_session import answered_once

__all__ = ["in_true_order", "repair_order"]


def in_true_order(messages: Iterable[StoredMessage]) -> Iterator[StoredMessage]:
    """Yield the messages of a session in their real order: each tool call is in the answer in which
    the model made it.

    Only sessions that were recorded over ACP (the CLI's JSON-RPC protocol) change. In their files,
    one message contains the tool calls of the whole session (seen in 0.61.0, not in 0.41.2). For
    refused calls and calls of unknown tools, the file contains only the results. Such a call is
    built from its result.
    """
    order = _CallPlacer()
    for message in messages:
        if message.type == "user" or message.type == "gemini":
            yield from order.take(message)
        else:
            yield from order.release(message.timestamp)
            yield message
    yield from order.end()


class _CallPlacer:
    """Finds the answer of the model to which each tool call belongs.

    An answer is held back until the tool results that follow the answer have been read: they show
    which calls belong to the answer.
    """

    def __init__(self) -> None:
        self._held: StoredMessage | None = None
        self._following: list[StoredMessage] = []
        self._gathered: StoredMessage | None = None
        self._unplaced: dict[str, dict[str, Any]] = {}
        self._placed: set[str] = set()
        """The ids of the calls that are already in a message."""

    def take(self, message: StoredMessage) -> Iterator[StoredMessage]:
        held = self._held
        if held is not None and _is_gathered(message):
            yield from self._gather(message, held)
        elif message.is_tool_results:
            if self._gathered is not None and message.id == f"{self._gathered.id}_response":
                self._keep_answers(message)
            elif held is not None:
                self._following.append(message)
            else:
                self._placed.update(name for name, _ in _answers(message))
                yield message
        else:
            yield from self.release(message.timestamp)
            call_ids = _call_ids(message)
            self._placed.update(call_ids)
            if message.type == "gemini" and not call_ids:
                self._held = message
            else:
                yield message

    def release(self, until: str | None) -> Iterator[StoredMessage]:
        """Yield the answer that was held back, with its tool calls, and then the messages with the
        results of these calls.

        A call belongs to the answer if its result follows the answer. A call without a result
        belongs to the answer if the call was made between the answer and `until`, the time of the
        next message. If `until` is None, all calls without a result belong to the answer.
        """
        held, self._held = self._held, None
        if held is None:
            return
        following, self._following = self._following, []
        calls = [call for results in following for call in self._answered(results)]
        for name, call in list(self._unplaced.items()):
            at = _text(call.get("timestamp"))
            if until is None or (at and until and held.timestamp <= at <= until):
                calls.append(self._unplaced.pop(name))
        yield _with_calls(held, calls) if calls else held
        yield from following

    def end(self) -> Iterator[StoredMessage]:
        yield from self.release(None)
        if self._unplaced and self._gathered is not None:
            yield _with_calls(self._gathered, list(self._unplaced.values()))

    def _gather(self, message: StoredMessage, held: StoredMessage) -> Iterator[StoredMessage]:
        """Remember the tool calls in `message`, which contains the calls of the whole session. They
        are moved to their answers later. Calls that are already in another message are skipped.

        If a call was made before the answer `held`, the answer that made the call is missing in the
        file. Such calls are not moved later: yield one message with all of them, if there are any.
        """
        self._gathered = message
        dropped: list[dict[str, Any]] = []
        for call in _calls_in(message):
            name = _text(call.get("id")) or _text(call.get("name"))
            if name in self._placed:
                continue
            self._placed.add(name)
            at = _text(call.get("timestamp"))
            if at and at < held.timestamp:
                # After an API error, the CLI removed the answer that made this call.
                dropped.append(call)
            else:
                self._unplaced[name] = call
        if dropped:
            yield _with_calls(message, dropped)

    def _keep_answers(self, message: StoredMessage) -> None:
        """Add each tool result in `message` to its tool call, unless the call has already been
        moved to another message.

        `message` contains the results of all calls. The CLI writes it when it resumes a session.
        """
        for name, part in _answers(message):
            if name in self._unplaced:
                _put_result(self._unplaced[name], part)

    def _answered(self, results: StoredMessage) -> Iterator[dict[str, Any]]:
        for name, part in _answers(results):
            call = self._unplaced.pop(name, None)
            if call is None:
                if name in self._placed:
                    continue
                answer = part["functionResponse"]
                call = {"id": name, "name": _text(answer.get("name")), "args": {}}
                call["timestamp"] = results.timestamp
            self._placed.add(name)
            _put_result(call, part)
            yield call


def _is_gathered(message: StoredMessage) -> bool:
    """Return whether this message contains the tool calls of a whole ACP session.

    Such a message contains only tool calls. A message that also contains text, thoughts or token
    counts is an answer of the model.
    """
    if message.type != "gemini" or message.tokens is not None or message.thoughts:
        return False
    return bool(_call_ids(message)) and not message.text.strip()


def _with_calls(message: StoredMessage, calls: list[dict[str, Any]]) -> StoredMessage:
    """Return a copy of `message` that has exactly these tool calls."""
    original = message.original or {"id": message.id, "type": message.type, "content": message.content}
    if isinstance(parts := original.get("content"), list):
        original["content"] = [part for part in parts if _dict_in(part, "functionCall") is None]
    return message_of({**original, "toolCalls": calls})


def _put_result(call: dict[str, Any], part: dict[str, Any]) -> None:
    response = part["functionResponse"].get("response")
    failed = isinstance(response, dict) and bool(response.get("error"))
    call["result"] = call.get("result") or [part]
    call["status"] = call.get("status") or ("error" if failed else "success")


def _call_ids(message: StoredMessage) -> list[str]:
    if message.tool_calls:
        return [call.id or call.name for call in message.tool_calls]
    if not isinstance(message.content, list):
        return []
    calls = (_dict_in(part, "functionCall") for part in message.content)
    return [_text(call.get("id")) or _text(call.get("name")) for call in calls if call is not None]


def _calls_in(message: StoredMessage) -> list[dict[str, Any]]:
    """Return the tool calls of a message as JSON objects, with all fields that they have in the
    file.
    """
    stored = message.original.get("toolCalls") if message.tool_calls else None
    if isinstance(stored, list):
        return [dict(call) for call in stored if isinstance(call, dict)]
    if message.tool_calls:
        return [_as_dict(call) for call in message.tool_calls]
    calls = (_dict_in(part, "functionCall") for part in message.parts)
    return [dict(call) for call in calls if call is not None]


def _as_dict(call: StoredToolCall) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(call)
    return value


def _answers(results: StoredMessage) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in results.parts:
        answer = _dict_in(part, "functionResponse")
        if answer is not None and (name := _text(answer.get("id")) or _text(answer.get("name"))):
            yield name, part


def _dict_in(part: Any, name: str) -> dict[str, Any] | None:
    value = part.get(name) if isinstance(part, dict) else None
    return value if isinstance(value, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# A part of the message with the calls of a whole ACP session
# (core/src/services/chatRecordingService.ts of Gemini CLI).
_GATHERED = b'"type":"gemini","content":"","toolCalls":['


def repair_order(file: Path) -> bool:
    """Repair the order of a session file that was recorded over ACP (the CLI's JSON-RPC protocol),
    so that the session can be resumed. Return True if the file was changed.

    The conversation in its real order is appended as a `$set` record, which replaces the
    conversation. Nothing is removed from the file. The caller must hold the lock of the session.

    Without the repair, the CLI would send a wrong conversation to the API: one message with all
    tool calls of the session, and each tool result twice. The API does not accept a result without
    a call, so it would reject this request (HTTP 400, "function response parts").
    """
    try:
        data = read_file(file)
        if file.suffix != ".jsonl" or _GATHERED not in data:
            return False
        conversation = replay(data.split(b"\n"))
        ordered = list(in_true_order(conversation.messages))
        if conversation.header is None or [*map(id, ordered)] == [*map(id, conversation.messages)]:
            return False
        _append(file, _checkpoint(list(answered_once(ordered))), whole=data.endswith(b"\n"))
    except (SessionError, OSError):
        return False  # the CLI resumes the file as it is, or reports why it cannot
    return True


def _checkpoint(messages: list[StoredMessage]) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    changes = {"messages": [msgspec.Raw(message.raw) for message in messages], "lastUpdated": now}
    return msgspec.json.encode({"$set": changes}) + b"\n"


def _append(file: Path, line: bytes, *, whole: bool) -> None:
    """Append a line to the file with one write.

    `whole` is True if the file ends with a line break. If it is False, because a process was killed
    while it was writing, a line break is written first.
    """
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    with os.fdopen(fd, "ab", buffering=0) as out:
        out.write(line if whole else b"\n" + line)
