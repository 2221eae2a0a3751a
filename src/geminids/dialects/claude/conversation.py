"""Convert stored messages to agent-cli-sdk's `UnifiedMessage`. Its content is in Claude's
format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from geminids.dialects.claude.tools import claude_tool
from geminids.gemini.protocol.journal.lenient import value_of
from geminids.gemini.protocol.journal.records import StoredMessage, StoredTokens, StoredToolCall
from geminids.gemini.protocol.stream_json import text_of
from geminids.sessions.repair.reorder_acp import in_true_order

__all__ = [
    "Image",
    "Source",
    "Text",
    "Thinking",
    "ToolResult",
    "ToolUse",
    "UnifiedContent",
    "UnifiedMessage",
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
    type: ClassVar[Literal["text"]] = "text"
    text: str


class Thinking(_Block, tag="thinking", frozen=True, gc=False):
    type: ClassVar[Literal["thinking"]] = "thinking"
    thinking: str


class ToolUse(_Block, tag="tool_use", frozen=True, gc=False):
    type: ClassVar[Literal["tool_use"]] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


class ToolResult(_Block, tag="tool_result", frozen=True, gc=False):
    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_use_id: str
    content: str
    is_error: bool


class Source(msgspec.Struct, frozen=True, tag_field="type", tag="base64", gc=False):
    type: ClassVar[Literal["base64"]] = "base64"
    data: str
    media_type: str


class Image(_Block, tag="image", frozen=True, gc=False):
    type: ClassVar[Literal["image"]] = "image"
    source: Source


UnifiedContent = Text | Thinking | ToolUse | ToolResult | Image


class Usage(msgspec.Struct, frozen=True, gc=False):
    """The token counts of one message.

    `input_tokens` includes `cache_read_tokens`. `thinking_tokens` and `tool_tokens` are part of
    `total_tokens`, but not of `output_tokens`.
    """

    input_tokens: int
    output_tokens: int
    total_tokens: int
    cache_read_tokens: int
    thinking_tokens: int
    tool_tokens: int


class UnifiedMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A message of a conversation in agent-cli-sdk's format.

    `content` is a string only if the message has no blocks. `timestamp` is in Unix milliseconds;
    None if the stored time is invalid. `raw` is the source message as JSON text. In the JSON of a
    `UnifiedMessage`, the source message is the object `_original`.
    """

    id: str
    role: str
    content: str | list[UnifiedContent]
    timestamp: int | None
    tool: str
    model: str | None = None
    usage: Usage | None = None
    raw: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="_original")

    @property
    def _original(self) -> dict[str, Any]:
        """The source of this message: the object that the CLI stored or, for a message that was
        built from events, the turn of the run."""
        value: dict[str, Any] = value_of(bytes(self.raw))
        return value


class HasMessages(Protocol):
    """An object with stored messages, such as a `StoredConversation`, a `JournalFile` or a `Session`."""

    @property
    def messages(self) -> Iterable[StoredMessage]: ...


def messages(
    conversation: HasMessages | Iterable[StoredMessage], *, everything: bool = False
) -> Iterator[UnifiedMessage]:
    """Convert stored messages to `UnifiedMessage`s.

    The CLI writes some messages in the user's name: context for the model, and tool results that
    are also stored with their calls. These messages are omitted. In sessions recorded over ACP (the
    CLI's JSON-RPC protocol), the CLI stores tool calls separately from the answers in which the
    model made them. These calls are moved into their answers. With `everything=True`, all messages
    are converted, in the order of the file.
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


def message(record: StoredMessage) -> UnifiedMessage:
    """Convert one stored message to a `UnifiedMessage`.

    >>> from geminids.gemini.protocol.journal.records import decode_record
    >>> message(decode_record(b'{"id":"m1","type":"user","content":"hello"}')).content
    [Text(text='hello')]
    """
    content = record.content
    blocks: list[UnifiedContent] = [
        Thinking(f"{thought.subject}: {thought.description}") for thought in record.thoughts
    ]
    for call in record.tool_calls:
        blocks += results_of(call)
    if type(content) is str:
        if content and not content.isspace():
            blocks.append(Text(content))
    else:
        blocks = _with_parts(blocks, record)
    return UnifiedMessage(
        record.id,
        "user" if record.type == "user" else "assistant",
        blocks or (content if type(content) is str else ""),
        milliseconds(record.timestamp),
        "gemini",
        record.model,
        None if record.tokens is None else _usage(record.tokens),
        msgspec.Raw(record.raw),
    )


def as_dict(message: UnifiedMessage) -> dict[str, Any]:
    """Return a message as a dictionary of JSON values. Its key `_original` contains the source
    message."""
    value: dict[str, Any] = value_of(msgspec.json.encode(message))
    return value


def results_of(call: StoredToolCall) -> list[UnifiedContent]:
    """Return the `tool_use` block of a call and, if the call has a result, also its `tool_result`
    block."""
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
    """Return the part with the result of the call `call_id`; the first part if none has that id.

    `parts` can contain results of other calls. If several calls ran in parallel, a CLI that resumes
    the session stores the results of all of these calls with each call.
    """
    for part in parts:
        if isinstance(part, dict) and _id(part.get("functionResponse")) == call_id:
            return part
    return parts[0]


def _id(answer: Any) -> str | None:
    call_id = answer.get("id") if isinstance(answer, dict) else None
    return call_id if isinstance(call_id, str) else None


def _result_text(part: Any) -> tuple[str, bool]:
    """Return the text of a `functionResponse` part, and whether the part reports an error."""
    answer = part.get("functionResponse") if isinstance(part, dict) else None
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        return "", False
    output, error = response.get("output"), response.get("error")
    return text_of(output or error or ""), bool(error)


def _with_parts(blocks: list[UnifiedContent], record: StoredMessage) -> list[UnifiedContent]:
    """Convert the content parts of `record` to blocks, and return them together with `blocks`.

    `blocks` were made from the fields `thoughts` and `tool_calls` of `record`. Parts are usually
    text. In a checkpoint they can also be thoughts, tool calls and tool results. If
    `record.thoughts` is not empty, parts with thoughts are skipped. If `record.tool_calls` is not
    empty, parts with tool calls are skipped.
    """
    thoughts: list[UnifiedContent] = []
    calls: list[UnifiedContent] = []
    images: list[UnifiedContent] = []
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
    """Change the text of a thought from `**subject** description` to `subject: description`."""
    match = _SUBJECT.fullmatch(text)
    return f"{match[1]}: {match[2]}" if match else text


def _call(function_call: dict[str, Any]) -> StoredToolCall:
    args = function_call.get("args")
    name = function_call.get("name")
    return StoredToolCall(
        id=_id(function_call) or "",
        name=name if isinstance(name, str) else "",
        args=args if isinstance(args, dict) else {},
    )


def _image(data: dict[str, Any]) -> list[UnifiedContent]:
    media_type, content = data.get("mimeType"), data.get("data")
    if isinstance(media_type, str) and isinstance(content, str) and media_type.startswith("image/"):
        return [Image(Source(content, media_type))]
    return []


def _ids(parts: list[Any]) -> set[str | None]:
    """Return the call ids of all tool results in `parts`."""
    answers = (part.get("functionResponse") for part in parts if isinstance(part, dict))
    return {_id(answer) for answer in answers if answer is not None}


def _usage(tokens: StoredTokens) -> Usage:
    return Usage(tokens.input, tokens.output, tokens.total, tokens.cached, tokens.thoughts, tokens.tool)


def milliseconds(timestamp: str) -> int | None:
    """Return an ISO 8601 time of a session file in Unix milliseconds; None if the time is
    invalid."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
