"""Conversations as messages in Claude's format: thinking, tool_use with tool_result, text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Protocol

import msgspec

from geminids.dialects.claude.tools import claude_tool
from geminids.gemini.protocol.journal.lenient import value_of
from geminids.gemini.protocol.journal.records import Message, Tokens, ToolCall
from geminids.gemini.protocol.stream_json import text_of
from geminids.sessions.repair.reorder_acp import in_true_order

__all__ = [
    "Block",
    "ClaudeMessage",
    "Image",
    "Source",
    "Text",
    "Thinking",
    "ToolResult",
    "ToolUse",
    "Usage",
    "as_dict",
    "message",
    "messages",
    "milliseconds",
    "results_of",
]

_SUBJECT = re.compile(r"(?s)\*\*(.+?)\*\* (.*)")


class _Block(msgspec.Struct, frozen=True, tag_field="type", gc=False):
    pass


class Text(_Block, tag="text", frozen=True, gc=False):
    text: str


class Thinking(_Block, tag="thinking", frozen=True, gc=False):
    thinking: str


class ToolUse(_Block, tag="tool_use", frozen=True, gc=False):
    id: str
    name: str
    input: dict[str, Any]


class ToolResult(_Block, tag="tool_result", frozen=True, gc=False):
    tool_use_id: str
    content: str
    is_error: bool


class Source(msgspec.Struct, frozen=True, tag_field="type", tag="base64", gc=False):
    data: str
    media_type: str


class Image(_Block, tag="image", frozen=True, gc=False):
    source: Source


Block = Text | Thinking | ToolUse | ToolResult | Image


class Usage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Tokens of one request.

    Input includes cached tokens; thinking is in the total, but not in the output.
    """

    input_tokens: int
    output_tokens: int
    total_tokens: int
    cache_read_tokens: int
    thinking_tokens: int
    tool_tokens: int


class ClaudeMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A message of a conversation. In JSON, `_original` holds the CLI's own message."""

    id: str
    role: str
    content: str | list[Block]
    timestamp: int
    tool: str
    model: str | None = None
    usage: Usage | None = None
    raw: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="_original")

    @property
    def original(self) -> dict[str, Any]:
        """The message as the CLI wrote it."""
        value: dict[str, Any] = value_of(bytes(self.raw))
        return value


class HasMessages(Protocol):
    """A `Conversation` or a `Journal`."""

    @property
    def messages(self) -> Iterable[Message]: ...


def messages(
    conversation: HasMessages | Iterable[Message], *, everything: bool = False
) -> Iterator[ClaudeMessage]:
    """Convert a conversation, or any messages, to Claude's format.

    Messages that the CLI writes in the user's name (its context, and repeated tool results) are
    omitted, and a tool call of an ACP session is moved into the answer that made it. `everything`
    keeps messages and order of the file.
    """
    records = conversation if isinstance(conversation, Iterable) else conversation.messages
    if everything:
        yield from map(message, records)
        return
    answered: set[str | None] = set()
    for record in in_true_order(records):
        if record.tool_calls:
            answered.update(call.id for call in record.tool_calls if call.result)
        elif record.type == "user":
            if record.is_tool_results:
                ids = _ids(record.parts)
                if ids <= answered:
                    continue
                answered |= ids
            elif record.is_injected:
                continue
        yield message(record)


def message(record: Message) -> ClaudeMessage:
    """Convert one message to Claude's format.

    >>> from geminids.gemini.protocol.journal.records import decode_record
    >>> message(decode_record(b'{"id":"m1","type":"user","content":"hello"}')).content
    [Text(text='hello')]
    """
    content = record.content
    blocks: list[Block] = [
        Thinking(f"{thought.subject}: {thought.description}") for thought in record.thoughts
    ]
    for call in record.tool_calls:
        blocks += results_of(call)
    if type(content) is str:
        if content and not content.isspace():
            blocks.append(Text(content))
    else:
        blocks = _with_parts(blocks, record)
    return ClaudeMessage(
        record.id,
        "user" if record.type == "user" else "assistant",
        blocks or (content if type(content) is str else ""),
        milliseconds(record.timestamp),
        "gemini",
        record.model,
        None if record.tokens is None else _usage(record.tokens),
        msgspec.Raw(record.raw),
    )


def as_dict(message: ClaudeMessage) -> dict[str, Any]:
    """A message as plain JSON values, including `_original`."""
    value: dict[str, Any] = value_of(msgspec.json.encode(message))
    return value


def results_of(call: ToolCall) -> list[Block]:
    """A call, and its result if there is one."""
    name, tool_input = claude_tool(call.name, call.args, call.display_name)
    use = ToolUse(call.id, name, tool_input)
    result = call.result
    if not result:
        return [use]
    if isinstance(result, str):
        return [use, ToolResult(call.id, result, call.status == "error")]
    parts = result if isinstance(result, list) else [result]
    answer = parts[0] if len(parts) == 1 else _answer_to(call.id, parts)
    text, failed = _result_text(answer)
    return [use, ToolResult(call.id, text, failed or call.status == "error")]


def _answer_to(call_id: str, parts: list[Any]) -> Any:
    """Pick the answer to this call.

    In a checkpoint, each parallel call has the answers to all of them.
    """
    for part in parts:
        if isinstance(part, dict) and _id(part.get("functionResponse")) == call_id:
            return part
    return parts[0]


def _id(answer: Any) -> str | None:
    call_id = answer.get("id") if isinstance(answer, dict) else None
    return call_id if isinstance(call_id, str) else None


def _result_text(part: Any) -> tuple[str, bool]:
    """The result that the model got, and whether it is an error."""
    answer = part.get("functionResponse") if isinstance(part, dict) else None
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        return "", False
    output, error = response.get("output"), response.get("error")
    return text_of(output or error or ""), bool(error)


def _with_parts(blocks: list[Block], record: Message) -> list[Block]:
    """Add the blocks of a list of parts: mostly text; in checkpoints also thoughts and calls."""
    thoughts: list[Block] = []
    calls: list[Block] = []
    images: list[Block] = []
    for part in record.parts:
        if not isinstance(part, dict):
            continue
        if part.get("thought"):
            if not record.thoughts:
                thoughts.append(Thinking(_thought(text_of(part.get("text", "")))))
        elif isinstance(call := part.get("functionCall"), dict):
            if not record.tool_calls:
                calls += results_of(_call(call))
        elif isinstance(answer := part.get("functionResponse"), dict):
            calls.append(ToolResult(_id(answer) or "", *_result_text(part)))
        elif isinstance(data := part.get("inlineData"), dict):
            images += _image(data)
    text = record.text
    return [*thoughts, *blocks, *calls, *([Text(text)] if text and not text.isspace() else ()), *images]


def _thought(text: str) -> str:
    """A thought in a part, formatted like the thoughts of a message."""
    match = _SUBJECT.fullmatch(text)
    return f"{match[1]}: {match[2]}" if match else text


def _call(function_call: dict[str, Any]) -> ToolCall:
    args = function_call.get("args")
    name = function_call.get("name")
    return ToolCall(
        id=_id(function_call) or "",
        name=name if isinstance(name, str) else "",
        args=args if isinstance(args, dict) else {},
    )


def _image(data: dict[str, Any]) -> list[Block]:
    media_type, content = data.get("mimeType"), data.get("data")
    if isinstance(media_type, str) and isinstance(content, str) and media_type.startswith("image/"):
        return [Image(Source(content, media_type))]
    return []


def _ids(parts: list[Any]) -> set[str | None]:
    """The ids of the calls that these parts answer."""
    answers = (part.get("functionResponse") for part in parts if isinstance(part, dict))
    return {_id(answer) for answer in answers if answer is not None}


def _usage(tokens: Tokens) -> Usage:
    return Usage(tokens.input, tokens.output, tokens.total, tokens.cached, tokens.thoughts, tokens.tool)


def milliseconds(timestamp: str) -> int:
    """A time of the CLI in Unix milliseconds; 0 if it is no time."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
