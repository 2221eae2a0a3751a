"""Extract the thoughts, and the tool calls with their results, from stored messages.

Usually, separate fields of a message contain them. In a checkpoint (a line of a session file that
replaces the whole conversation), they are in the content of the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from geminids.gemini.protocol.journal.records import StoredMessage, StoredToolCall
from geminids.sessions.repair.reorder_acp import in_true_order

__all__ = ["calls_of", "exchanges", "thoughts_of"]

_SUBJECT = re.compile(r"(?s)\*\*(.+?)\*\* (.*)")


def thoughts_of(message: StoredMessage) -> Iterator[tuple[str, str]]:
    """Yield the subject and the text of each thought in a message.

    If the message has no field for thoughts, the thoughts are read from its content. This is the
    case in a checkpoint, a line that replaces the whole conversation.
    """
    for thought in message.thoughts:
        yield thought.subject, thought.description
    if message.thoughts or not isinstance(message.content, list):
        return
    for part in message.content:
        if isinstance(part, dict) and part.get("thought"):
            text = _text(part.get("text"))
            match = _SUBJECT.fullmatch(text)
            yield (match[1], match[2]) if match else ("", text)


def exchanges(messages: Iterable[StoredMessage]) -> Iterator[tuple[StoredMessage, dict[str, Any]]]:
    """Yield each message with a dict of the tool results that follow it. Each key is the id of a
    tool call, and its value is the content part with the result.

    In the file, these results are in separate messages, which are not yielded. Each tool call is
    moved to the answer in which the model made it (see `in_true_order`).
    """
    current: StoredMessage | None = None
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


def _answers(message: StoredMessage) -> Iterator[tuple[str, Any]]:
    for part in message.content if isinstance(message.content, list) else ():
        answer = _answer(part)
        if answer is not None:
            yield _text(answer.get("id")) or _text(answer.get("name")), part


def calls_of(message: StoredMessage, answers: dict[str, Any]) -> Iterator[StoredToolCall]:
    """Yield the tool calls of a message, each with its result.

    `answers` are the results that `exchanges` yielded for the message. If there is a result but no
    call for it in the message, a call without arguments is yielded for this result. If the message
    has no field for tool calls, the calls are read from its content. This is the case in a
    checkpoint, a line that replaces the whole conversation.
    """
    known: set[str] = set()
    for call in message.tool_calls or _calls_in_parts(message.content):
        known.add(call.id or call.name)
        yield _with_result(call, answers)
    for name, part in answers.items():
        # The file has the result of this call, but no longer the call itself.
        if name not in known:
            answer = _answer(part) or {}
            yield _with_result(StoredToolCall(id=name, name=_text(answer.get("name"))), answers)


def _calls_in_parts(content: Any) -> Iterator[StoredToolCall]:
    for part in content if isinstance(content, list) else ():
        call = part.get("functionCall") if isinstance(part, dict) else None
        if isinstance(call, dict):
            args = call.get("args")
            yield StoredToolCall(
                id=_text(call.get("id")),
                name=_text(call.get("name")),
                args=args if isinstance(args, dict) else {},
            )


def _with_result(call: StoredToolCall, answers: dict[str, Any]) -> StoredToolCall:
    """Return the tool call without the results of other calls.

    In a checkpoint (a line that replaces the whole conversation), each of several parallel calls
    contains the results of all of them. If the call contains no result, take the result from
    `answers`, whose keys are the ids or names of calls. If it has none either, return the call
    unchanged.
    """
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
