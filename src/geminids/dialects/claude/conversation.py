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
    """Tokens of one request. `input_tokens` has the cached ones in it; thinking is in the total, not in the output."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    cache_read_tokens: int
    thinking_tokens: int
    tool_tokens: int


class ClaudeMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A message of a conversation; as JSON it is the unified message, with the CLI's own in `_original`."""

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
        """The message as the CLI has written it."""
        value: dict[str, Any] = value_of(bytes(self.raw))
        return value


class Talk(Protocol):
    """What has messages: a `Conversation` or a `Journal`."""

    @property
    def messages(self) -> Iterable[Message]: ...


def messages(conversation: Talk | Iterable[Message], *, everything: bool = False) -> Iterator[ClaudeMessage]:
    """The messages of a conversation, or of any number of messages, in Claude's format.

    What the CLI writes in the user's name (its context, and tool results a second time) is left out, and each call
    of a session that was made on ACP stands in the answer that made it; with `everything` they are as in the file.
    """
    given = conversation if isinstance(conversation, Iterable) else conversation.messages
    if everything:
        yield from map(message, given)
        return
    told: set[str | None] = set()
    for one in in_true_order(given):
        if one.tool_calls:
            told.update(call.id for call in one.tool_calls if call.result)
        elif one.type == "user":
            if one.is_tool_results:
                answered = _ids(one.parts)
                if answered <= told:
                    continue
                told |= answered
            elif one.is_injected:
                continue
        yield message(one)


def message(said: Message) -> ClaudeMessage:
    """One message in Claude's format.

    >>> from geminids.gemini.protocol.journal.records import decode_record
    >>> message(decode_record(b'{"id":"m1","type":"user","content":"hello"}')).content
    [Text(text='hello')]
    """
    content = said.content
    blocks: list[Block] = [Thinking(f"{one.subject}: {one.description}") for one in said.thoughts]
    for call in said.tool_calls:
        blocks += results_of(call)
    if type(content) is str:
        if content and not content.isspace():
            blocks.append(Text(content))
    else:
        blocks = _with_parts(blocks, said)
    return ClaudeMessage(
        said.id,
        "user" if said.type == "user" else "assistant",
        blocks or (content if type(content) is str else ""),
        milliseconds(said.timestamp),
        "gemini",
        said.model,
        None if said.tokens is None else _usage(said.tokens),
        msgspec.Raw(said.raw),
    )


def as_dict(said: ClaudeMessage) -> dict[str, Any]:
    """A message as plain JSON values, `_original` among them."""
    value: dict[str, Any] = value_of(msgspec.json.encode(said))
    return value


def results_of(call: ToolCall) -> list[Block]:
    """A call, and its result where it has one."""
    name, given = claude_tool(call.name, call.args, call.display_name)
    use = ToolUse(call.id, name, given)
    result = call.result
    if not result:
        return [use]
    if isinstance(result, str):
        return [use, ToolResult(call.id, result, call.status == "error")]
    parts = result if isinstance(result, list) else [result]
    answer = parts[0] if len(parts) == 1 else _answer_to(call.id, parts)
    text, failed = _told(answer)
    return [use, ToolResult(call.id, text, failed or call.status == "error")]


def _answer_to(call_id: str, parts: list[Any]) -> Any:
    """In a checkpoint each of several parallel calls has the answers to all of them."""
    for part in parts:
        if isinstance(part, dict) and _id(part.get("functionResponse")) == call_id:
            return part
    return parts[0]


def _id(answer: Any) -> str | None:
    found = answer.get("id") if isinstance(answer, dict) else None
    return found if isinstance(found, str) else None


def _told(part: Any) -> tuple[str, bool]:
    """What a tool told the model, and whether that is an error."""
    answer = part.get("functionResponse") if isinstance(part, dict) else None
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        return "", False
    output, error = response.get("output"), response.get("error")
    return text_of(output or error or ""), bool(error)


def _with_parts(blocks: list[Block], said: Message) -> list[Block]:
    """What stands in a list of parts: for the most part text, in checkpoints thoughts and calls too."""
    thoughts: list[Block] = []
    calls: list[Block] = []
    images: list[Block] = []
    for part in said.parts:
        if not isinstance(part, dict):
            continue
        if part.get("thought"):
            if not said.thoughts:
                thoughts.append(Thinking(_thought(text_of(part.get("text", "")))))
        elif isinstance(call := part.get("functionCall"), dict):
            if not said.tool_calls:
                calls += results_of(_call(call))
        elif isinstance(answer := part.get("functionResponse"), dict):
            calls.append(ToolResult(_id(answer) or "", *_told(part)))
        elif isinstance(data := part.get("inlineData"), dict):
            images += _image(data)
    text = said.text
    return [*thoughts, *blocks, *calls, *([Text(text)] if text and not text.isspace() else ()), *images]


def _thought(text: str) -> str:
    """A thought as the CLI writes it among parts, in the words of a message's own thoughts."""
    found = _SUBJECT.fullmatch(text)
    return f"{found[1]}: {found[2]}" if found else text


def _call(given: dict[str, Any]) -> ToolCall:
    args = given.get("args")
    name = given.get("name")
    return ToolCall(
        id=_id(given) or "",
        name=name if isinstance(name, str) else "",
        args=args if isinstance(args, dict) else {},
    )


def _image(data: dict[str, Any]) -> list[Block]:
    kind, held = data.get("mimeType"), data.get("data")
    if isinstance(kind, str) and isinstance(held, str) and kind.startswith("image/"):
        return [Image(Source(held, kind))]
    return []


def _ids(parts: list[Any]) -> set[str | None]:
    """The ids of the calls that these parts answer."""
    answers = (part.get("functionResponse") for part in parts if isinstance(part, dict))
    return {_id(answer) for answer in answers if answer is not None}


def _usage(tokens: Tokens) -> Usage:
    return Usage(tokens.input, tokens.output, tokens.total, tokens.cached, tokens.thoughts, tokens.tool)


def milliseconds(timestamp: str) -> int:
    """A time as the CLI writes it, in ms since 1970; 0 for none."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
