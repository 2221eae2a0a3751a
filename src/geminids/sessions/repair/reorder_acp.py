"""Repair the order of ACP sessions: move each tool call back to the answer that made it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from geminids.errors import SessionError
from geminids.gemini.protocol.journal.records import Message, ToolCall, message_of
from geminids.gemini.protocol.journal.replay import replay
from geminids.sessions.loader import read_file
from geminids.sessions.repair.write import answered_once

__all__ = ["in_true_order", "repair_order"]


def in_true_order(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages with each tool call in the answer that made it. Headless sessions do not change.

    With ACP the CLI has two recorders for one file: one writes each answer of the model and each batch
    of results, the other puts the calls of the whole session into one more message (0.61.0; 0.41.2
    does not). Refused calls and calls of unknown tools are in no message; only their results are.
    """
    order = _Order()
    for message in messages:
        if message.type == "user" or message.type == "gemini":
            yield from order.take(message)
        else:
            yield from order.release(message.timestamp)
            yield message
    yield from order.end()


class _Order:
    """Holds back one answer until the results after it show which calls belong to it."""

    def __init__(self) -> None:
        self._held: Message | None = None
        self._following: list[Message] = []
        self._gathered: Message | None = None
        self._unplaced: dict[str, dict[str, Any]] = {}
        self._placed: set[str] = set()
        """The calls that are in a message already."""

    def take(self, message: Message) -> Iterator[Message]:
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
            own = _call_ids(message)
            self._placed.update(own)
            if message.type == "gemini" and not own:
                self._held = message
            else:
                yield message

    def release(self, until: str | None) -> Iterator[Message]:
        """Yield the held answer with its calls: those in its results, and those of its time without one."""
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

    def end(self) -> Iterator[Message]:
        yield from self.release(None)
        if self._unplaced and self._gathered is not None:
            yield _with_calls(self._gathered, list(self._unplaced.values()))

    def _gather(self, message: Message, held: Message) -> Iterator[Message]:
        """Take the calls of the message that has them all. That message itself is not yielded."""
        self._gathered = message
        gone: list[dict[str, Any]] = []
        for call in _calls_in(message):
            name = _text(call.get("id")) or _text(call.get("name"))
            if name in self._placed:
                continue
            self._placed.add(name)
            at = _text(call.get("timestamp"))
            if at and at < held.timestamp:
                # The CLI dropped its turn after an API error.
                gone.append(call)
            else:
                self._unplaced[name] = call
        if gone:
            yield _with_calls(message, gone)

    def _keep_answers(self, message: Message) -> None:
        """Keep the results that the CLI wrote on resume: those of all gathered calls in one message."""
        for name, part in _answers(message):
            if name in self._unplaced:
                _put_result(self._unplaced[name], part)

    def _answered(self, results: Message) -> Iterator[dict[str, Any]]:
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


def _is_gathered(message: Message) -> bool:
    """Whether a message has only calls. In a headless session, an answer of the model has tokens too."""
    if message.type != "gemini" or message.tokens is not None or message.thoughts:
        return False
    return bool(_call_ids(message)) and not message.text.strip()


def _with_calls(message: Message, calls: list[dict[str, Any]]) -> Message:
    """Return the message with these calls, and without the calls among its parts."""
    original = message.original or {"id": message.id, "type": message.type, "content": message.content}
    if isinstance(parts := original.get("content"), list):
        original["content"] = [part for part in parts if _dict_in(part, "functionCall") is None]
    return message_of({**original, "toolCalls": calls})


def _put_result(call: dict[str, Any], part: dict[str, Any]) -> None:
    response = part["functionResponse"].get("response")
    failed = isinstance(response, dict) and bool(response.get("error"))
    call["result"] = call.get("result") or [part]
    call["status"] = call.get("status") or ("error" if failed else "success")


def _call_ids(message: Message) -> list[str]:
    if message.tool_calls:
        return [call.id or call.name for call in message.tool_calls]
    if not isinstance(message.content, list):
        return []
    calls = (_dict_in(part, "functionCall") for part in message.content)
    return [_text(call.get("id")) or _text(call.get("name")) for call in calls if call is not None]


def _calls_in(message: Message) -> list[dict[str, Any]]:
    """Return the calls as they are in the file, including fields that we do not know."""
    stored = message.original.get("toolCalls") if message.tool_calls else None
    if isinstance(stored, list):
        return [dict(call) for call in stored if isinstance(call, dict)]
    if message.tool_calls:
        return [_as_dict(call) for call in message.tool_calls]
    calls = (_dict_in(part, "functionCall") for part in message.parts)
    return [dict(call) for call in calls if call is not None]


def _as_dict(call: ToolCall) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(call)
    return value


def _answers(results: Message) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in results.parts:
        answer = _dict_in(part, "functionResponse")
        if answer is not None and (name := _text(answer.get("id")) or _text(answer.get("name"))):
            yield name, part


def _dict_in(part: Any, name: str) -> dict[str, Any] | None:
    value = part.get(name) if isinstance(part, dict) else None
    return value if isinstance(value, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# Start of the message with the calls of a whole ACP session (core/src/services/chatRecordingService.ts).
_GATHERED = b'"type":"gemini","content":"","toolCalls":['


def repair_order(file: Path) -> bool:
    """Append the conversation in its real order to its file; return False if that is not needed.

    Without this, the CLI resumes such a session with all calls in the first answer that made one, and
    with their results both there and in their places. The API rejects a result without its call (400,
    "function response parts"). Nothing is removed: a checkpoint in the CLI's format is appended. Call
    it only while you hold the session.
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


def _checkpoint(messages: list[Message]) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    changes = {"messages": [msgspec.Raw(message.raw) for message in messages], "lastUpdated": now}
    return msgspec.json.encode({"$set": changes}) + b"\n"


def _append(file: Path, line: bytes, *, whole: bool) -> None:
    """Append a line with one write. A killed process may have left the last line unfinished."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    with os.fdopen(fd, "ab", buffering=0) as out:
        out.write(line if whole else b"\n" + line)
