"""Calls with their results, and thoughts, wherever a message has them: in a checkpoint they stand among its parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from geminids.gemini.protocol.journal.records import Message, ToolCall
from geminids.sessions.repair.reorder_acp import in_true_order

__all__ = ["calls_of", "exchanges", "thoughts_of"]

_SUBJECT = re.compile(r"(?s)\*\*(.+?)\*\* (.*)")


def thoughts_of(said: Message) -> Iterator[tuple[str, str]]:
    """Subject and text of each thought; in a checkpoint they stand among the parts."""
    for thought in said.thoughts:
        yield thought.subject, thought.description
    if said.thoughts or not isinstance(said.content, list):
        return
    for part in said.content:
        if isinstance(part, dict) and part.get("thought"):
            text = _text(part.get("text"))
            found = _SUBJECT.fullmatch(text)
            yield (found[1], found[2]) if found else ("", text)


def exchanges(messages: Iterable[Message]) -> Iterator[tuple[Message, dict[str, Any]]]:
    """Each message in its true order, with the tool results that stand in messages of their own behind it."""
    held: Message | None = None
    answers: dict[str, Any] = {}
    for message in in_true_order(messages):
        if message.is_tool_results and held is not None:
            for name, part in _answers(message):
                answers.setdefault(name, part)
            continue
        if held is not None:
            yield held, answers
        held, answers = message, dict(_answers(message) if message.is_tool_results else ())
    if held is not None:
        yield held, answers


def _answers(message: Message) -> Iterator[tuple[str, Any]]:
    for part in message.content if isinstance(message.content, list) else ():
        answer = _answer(part)
        if answer is not None:
            yield _text(answer.get("id")) or _text(answer.get("name")), part


def calls_of(said: Message, answers: dict[str, Any]) -> Iterator[ToolCall]:
    """A message's calls, each with its own result; in a checkpoint they stand among the parts."""
    known: set[str] = set()
    for call in said.tool_calls or _calls_among(said.content):
        known.add(call.id or call.name)
        yield _with_result(call, answers)
    for name, part in answers.items():
        # A result of a call that is not there any more.
        if name not in known:
            answer = _answer(part) or {}
            yield _with_result(ToolCall(id=name, name=_text(answer.get("name"))), answers)


def _calls_among(content: Any) -> Iterator[ToolCall]:
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
    """In a checkpoint each of several parallel calls has the answers to all of them."""
    told = call.result
    if isinstance(told, str) and told:
        told = {"functionResponse": {"id": call.id, "response": {"output": told}}}
    parts = told if isinstance(told, list) else [told] if told else []
    own = [part for part in parts if (_answer(part) or {}).get("id") == call.id]
    part = own[0] if own else parts[0] if parts else answers.get(call.id or call.name)
    if part is None:
        return call
    response = (_answer(part) or {}).get("response")
    failed = isinstance(response, dict) and response.get("error")
    status = call.status or ("error" if failed else "success")
    return msgspec.structs.replace(call, result=[part], status=status)


def _answer(part: Any) -> dict[str, Any] | None:
    found = part.get("functionResponse") if isinstance(part, dict) else None
    return found if isinstance(found, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
