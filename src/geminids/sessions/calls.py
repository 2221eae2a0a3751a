"""Tool calls with their results, and thoughts, of a message or of the parts of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from geminids.gemini.protocol.journal.records import Message, ToolCall
from geminids.sessions.repair.reorder_acp import in_true_order

__all__ = ["calls_of", "exchanges", "thoughts_of"]

_SUBJECT = re.compile(r"(?s)\*\*(.+?)\*\* (.*)")


def thoughts_of(message: Message) -> Iterator[tuple[str, str]]:
    """Yield subject and text of each thought. In a checkpoint, thoughts are parts of the content."""
    for thought in message.thoughts:
        yield thought.subject, thought.description
    if message.thoughts or not isinstance(message.content, list):
        return
    for part in message.content:
        if isinstance(part, dict) and part.get("thought"):
            text = _text(part.get("text"))
            match = _SUBJECT.fullmatch(text)
            yield (match[1], match[2]) if match else ("", text)


def exchanges(messages: Iterable[Message]) -> Iterator[tuple[Message, dict[str, Any]]]:
    """Yield each message in its real order, with the tool results that follow in separate messages."""
    current: Message | None = None
    answers: dict[str, Any] = {}
    for message in in_true_order(messages):
        if message.is_tool_results and current is not None:
            for name, part in _answers(message):
                answers.setdefault(name, part)
            continue
        if current is not None:
            yield current, answers
        current, answers = message, dict(_answers(message) if message.is_tool_results else ())
    if current is not None:
        yield current, answers


def _answers(message: Message) -> Iterator[tuple[str, Any]]:
    for part in message.content if isinstance(message.content, list) else ():
        answer = _answer(part)
        if answer is not None:
            yield _text(answer.get("id")) or _text(answer.get("name")), part


def calls_of(message: Message, answers: dict[str, Any]) -> Iterator[ToolCall]:
    """Yield the calls of a message, each with its result. In a checkpoint, calls are parts of the content."""
    known: set[str] = set()
    for call in message.tool_calls or _calls_in_parts(message.content):
        known.add(call.id or call.name)
        yield _with_result(call, answers)
    for name, part in answers.items():
        # The result of a call that is no longer in the file.
        if name not in known:
            answer = _answer(part) or {}
            yield _with_result(ToolCall(id=name, name=_text(answer.get("name"))), answers)


def _calls_in_parts(content: Any) -> Iterator[ToolCall]:
    for part in content if isinstance(content, list) else ():
        call = part.get("functionCall") if isinstance(part, dict) else None
        if isinstance(call, dict):
            args = call.get("args")
            yield ToolCall(
                id=_text(call.get("id")),
                name=_text(call.get("name")),
                args=args if isinstance(args, dict) else {},
            )


def _with_result(call: ToolCall, answers: dict[str, Any]) -> ToolCall:
    """Return the call with its own result. In a checkpoint, parallel calls contain the results of all."""
    result = call.result
    if isinstance(result, str) and result:
        result = {"functionResponse": {"id": call.id, "response": {"output": result}}}
    parts = result if isinstance(result, list) else [result] if result else []
    own = [part for part in parts if (_answer(part) or {}).get("id") == call.id]
    part = own[0] if own else parts[0] if parts else answers.get(call.id or call.name)
    if part is None:
        return call
    response = (_answer(part) or {}).get("response")
    failed = isinstance(response, dict) and response.get("error")
    status = call.status or ("error" if failed else "success")
    return msgspec.structs.replace(call, result=[part], status=status)


def _answer(part: Any) -> dict[str, Any] | None:
    answer = part.get("functionResponse") if isinstance(part, dict) else None
    return answer if isinstance(answer, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
