"""Repair sessions that were made on ACP: each call goes back to the answer that made it."""

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

__all__ = ["in_true_order", "mend"]


def in_true_order(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages with every tool call in the answer that made it; those of a headless session as they are.

    On ACP the CLI has two recorders for one file: one writes each answer of the model and each batch of results,
    the other puts the calls of the whole session into one more message (0.61.0; 0.41.2 does not). Calls that were
    refused and those of unknown tools stand in no message: their results tell of them.
    """
    order = _Order()
    for message in messages:
        if message.type == "user" or message.type == "gemini":
            yield from order.take(message)
        else:
            yield from order.let_go(message.timestamp)
            yield message
    yield from order.end()


class _Order:
    """One answer is held back until the results behind it say which calls were its own."""

    def __init__(self) -> None:
        self._held: Message | None = None
        self._behind: list[Message] = []
        self._gathered: Message | None = None
        self._loose: dict[str, dict[str, Any]] = {}
        self._told: set[str] = set()
        """The calls that stand in a message already."""

    def take(self, message: Message) -> Iterator[Message]:
        held = self._held
        if held is not None and _is_gathered(message):
            yield from self._gather(message, held)
        elif message.is_tool_results:
            if self._gathered is not None and message.id == f"{self._gathered.id}_response":
                self._keep_answers(message)
            elif held is not None:
                self._behind.append(message)
            else:
                self._told.update(name for name, _ in _answers(message))
                yield message
        else:
            yield from self.let_go(message.timestamp)
            own = _call_ids(message)
            self._told.update(own)
            if message.type == "gemini" and not own:
                self._held = message
            else:
                yield message

    def let_go(self, until: str | None) -> Iterator[Message]:
        """The answer with the calls that its results name, and those of its time that got none."""
        held, self._held = self._held, None
        if held is None:
            return
        behind, self._behind = self._behind, []
        calls = [call for one in behind for call in self._answered(one)]
        for name, call in list(self._loose.items()):
            at = _text(call.get("timestamp"))
            if until is None or (at and until and held.timestamp <= at <= until):
                calls.append(self._loose.pop(name))
        yield _with_calls(held, calls) if calls else held
        yield from behind

    def end(self) -> Iterator[Message]:
        yield from self.let_go(None)
        if self._loose and self._gathered is not None:
            yield _with_calls(self._gathered, list(self._loose.values()))

    def _gather(self, message: Message, held: Message) -> Iterator[Message]:
        """Take the calls of the one message that has them all; it is not shown itself."""
        self._gathered = message
        gone: list[dict[str, Any]] = []
        for call in _calls_in(message):
            name = _text(call.get("id")) or _text(call.get("name"))
            if name in self._told:
                continue
            self._told.add(name)
            at = _text(call.get("timestamp"))
            if at and at < held.timestamp:
                # Its turn was taken back after an error of the API.
                gone.append(call)
            else:
                self._loose[name] = call
        if gone:
            yield _with_calls(message, gone)

    def _keep_answers(self, message: Message) -> None:
        """What the CLI makes of the gathered calls when it resumes: all results at once, in one message."""
        for name, part in _answers(message):
            if name in self._loose:
                _put_result(self._loose[name], part)

    def _answered(self, results: Message) -> Iterator[dict[str, Any]]:
        for name, part in _answers(results):
            call = self._loose.pop(name, None)
            if call is None:
                if name in self._told:
                    continue
                answer = part["functionResponse"]
                call = {"id": name, "name": _text(answer.get("name")), "args": {}}
                call["timestamp"] = results.timestamp
            self._told.add(name)
            _put_result(call, part)
            yield call


def _is_gathered(message: Message) -> bool:
    """Calls and nothing else: an answer of the model has its tokens, in a headless session."""
    if message.type != "gemini" or message.tokens is not None or message.thoughts:
        return False
    return bool(_call_ids(message)) and not message.text.strip()


def _with_calls(said: Message, calls: list[dict[str, Any]]) -> Message:
    """The message with these calls, and without those among its parts."""
    original = said.original or {"id": said.id, "type": said.type, "content": said.content}
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
    found = (_dict_in(part, "functionCall") for part in message.content)
    return [_text(call.get("id")) or _text(call.get("name")) for call in found if call is not None]


def _calls_in(message: Message) -> list[dict[str, Any]]:
    """The calls as they stand in the file, with the fields that we do not know."""
    stored = message.original.get("toolCalls") if message.tool_calls else None
    if isinstance(stored, list):
        return [dict(call) for call in stored if isinstance(call, dict)]
    if message.tool_calls:
        return [_plain(call) for call in message.tool_calls]
    found = (_dict_in(part, "functionCall") for part in message.parts)
    return [dict(call) for call in found if call is not None]


def _plain(call: ToolCall) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(call)
    return value


def _answers(results: Message) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in results.parts:
        answer = _dict_in(part, "functionResponse")
        if answer is not None and (name := _text(answer.get("id")) or _text(answer.get("name"))):
            yield name, part


def _dict_in(part: Any, name: str) -> dict[str, Any] | None:
    found = part.get(name) if isinstance(part, dict) else None
    return found if isinstance(found, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# How the message begins that has the calls of a whole ACP session (core/src/services/chatRecordingService.ts).
_GATHERED = b'"type":"gemini","content":"","toolCalls":['


def mend(file: Path) -> bool:
    """Write the conversation anew at the end of its file, in its true order; False where there is no need.

    The CLI resumes such a session with all calls in the first answer that made one, and with their results there
    and once more at their places. The API takes no result without its call (400, "function response parts").
    Nothing is taken away: the file grows by a checkpoint as the CLI writes it. Only for a session that is held.
    """
    try:
        data = read_file(file)
        if file.suffix != ".jsonl" or _GATHERED not in data:
            return False
        told = replay(data.split(b"\n"))
        ordered = list(in_true_order(told.messages))
        if told.header is None or [*map(id, ordered)] == [*map(id, told.messages)]:
            return False
        _append(file, _checkpoint(list(answered_once(ordered))), whole=data.endswith(b"\n"))
    except (SessionError, OSError):
        return False  # the CLI resumes it as it is, or says why it cannot
    return True


def _checkpoint(messages: list[Message]) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    changes = {"messages": [msgspec.Raw(one.raw) for one in messages], "lastUpdated": now}
    return msgspec.json.encode({"$set": changes}) + b"\n"


def _append(file: Path, line: bytes, *, whole: bool) -> None:
    """One write, behind whatever a process that was killed has left of its last line."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    with os.fdopen(fd, "ab", buffering=0) as out:
        out.write(line if whole else b"\n" + line)
