"""The lines that Claude Code prints during a run, as structs, and functions that encode them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from geminids.dialects.claude.tools import claude_tool

__all__ = [
    "ApiErrorLine",
    "Assistant",
    "ClaudeModelUsage",
    "ContentBlock",
    "Denial",
    "Init",
    "LineIds",
    "Message",
    "Result",
    "TextBlock",
    "ThinkingBlock",
    "ToolResultBlock",
    "ToolResults",
    "ToolUseBlock",
    "Usage",
    "User",
    "encoded",
    "line_of",
    "tool_use",
]

# The release of Claude Code that prints lines in this format.
_VERSION = "2.1.240"
_NAMES = uuid.UUID("d7b1f2a4-6e0c-5b39-9a51-47e1b0c8a6d2")
_encode = msgspec.json.Encoder().encode


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """Token counts of a message or a run. Unknown counts are omitted.

    `input_tokens` excludes cached tokens. `output_tokens` includes thinking.
    """

    input_tokens: int | UnsetType = UNSET
    cache_creation_input_tokens: int | UnsetType = UNSET
    cache_read_input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET


class ClaudeModelUsage(Struct, frozen=True, gc=False):
    """Token counts of one model, for all requests of a run.

    All fields are always present, because programs that read Claude Code's output expect them. A
    field whose value is unknown is null.
    """

    input_tokens: int | None = field(name="inputTokens")
    output_tokens: int | None = field(name="outputTokens")
    cache_read: int | None = field(name="cacheReadInputTokens")
    cache_creation: int | None = field(name="cacheCreationInputTokens", default=0)
    searches: int | None = field(name="webSearchRequests", default=None)
    cost: float | None = field(name="costUSD", default=None)
    context_window: int | None = field(name="contextWindow", default=None)
    max_output: int | None = field(name="maxOutputTokens", default=None)


class TextBlock(Struct, frozen=True, tag_field="type", tag="text", gc=False):
    text: str


class ThinkingBlock(Struct, frozen=True, tag_field="type", tag="thinking", gc=False):
    thinking: str
    signature: str = ""


class ToolUseBlock(Struct, frozen=True, tag_field="type", tag="tool_use", gc=False):
    id: str
    name: str
    input: Raw


class ToolResultBlock(Struct, frozen=True, tag_field="type", tag="tool_result", gc=False):
    tool_use_id: str
    content: str
    is_error: bool


ContentBlock = TextBlock | ThinkingBlock | ToolUseBlock


class Message(Struct, frozen=True, gc=False):
    """A message of the model in the format of Claude's API."""

    id: str
    type: str
    role: str
    model: str
    content: list[ContentBlock]
    stop_reason: str | None
    stop_sequence: str | None
    usage: Usage


class ToolResults(Struct, frozen=True, gc=False):
    """A message with the role `user` that contains tool results."""

    role: str
    content: list[ToolResultBlock]


class Init(Struct, frozen=True, tag_field="type", tag="system"):
    """The first line of the output of a run.

    The lists of tools, servers and skills are empty, because Gemini CLI does not report them.
    """

    subtype: str
    cwd: str
    session_id: str
    tools: list[str]
    mcp_servers: list[Any]
    model: str
    permission_mode: str = field(name="permissionMode")
    slash_commands: list[str]
    api_key_source: str = field(name="apiKeySource")
    claude_code_version: str
    output_style: str
    agents: list[str]
    skills: list[str]
    plugins: list[Any]
    uuid: str

    @classmethod
    def of(cls, *, cwd: str, session_id: str, model: str, mode: str, line_id: str) -> Init:
        return cls(
            "init", cwd, session_id, [], [], model, mode, [], "none", _VERSION, "default", [], [], [], line_id
        )


class Assistant(Struct, frozen=True, tag_field="type", tag="assistant", gc=False):
    message: Message
    parent_tool_use_id: str | None
    session_id: str
    uuid: str


class ApiErrorLine(Struct, frozen=True, tag_field="type", tag="assistant", gc=False):
    """An API error, in the form of a message of the model. The text of the message is the error;
    the model did not write it."""

    message: Message
    parent_tool_use_id: str | None
    session_id: str
    uuid: str
    error: str


class User(Struct, frozen=True, tag_field="type", tag="user", omit_defaults=True, gc=False):
    message: ToolResults
    parent_tool_use_id: str | None
    session_id: str
    uuid: str
    tool_use_result: str | UnsetType = UNSET


class Denial(Struct, frozen=True, gc=False):
    tool_name: str
    tool_use_id: str
    tool_input: Raw


class Result(Struct, frozen=True, kw_only=True, tag_field="type", tag="result", omit_defaults=True):
    """The last line of the output of a run."""

    subtype: str
    is_error: bool
    duration_ms: int
    duration_api_ms: int
    num_turns: int
    result: str | UnsetType = UNSET
    stop_reason: str | UnsetType = UNSET
    session_id: str
    total_cost_usd: float | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    model_usage: dict[str, ClaudeModelUsage] | UnsetType = field(name="modelUsage", default=UNSET)
    permission_denials: list[Denial]
    structured_output: Any | UnsetType = UNSET
    errors: list[str] | UnsetType = UNSET
    api_error_status: int | UnsetType = UNSET
    terminal_reason: str | UnsetType = UNSET
    uuid: str


class LineIds:
    """Creates the ids of lines and messages from the run id.

    The ids contain no random numbers and no times, so the same events always result in the same
    bytes.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id.encode("utf-8", "replace").decode()
        # The last twelve digits of a line id are a counter. Computing a hash for each line would
        # take longer than encoding the rest of the line.
        self.stem = str(uuid.uuid5(_NAMES, self._run_id))[:24]
        self.number: Callable[[], int] = count(1).__next__
        self._messages = 0

    def line(self) -> str:
        return f"{self.stem}{self.number():012x}"

    def message(self) -> str:
        self._messages += 1
        return f"msg_{self._run_id}_{self._messages}"


def line_of(value: Struct) -> bytes:
    return encoded(value) + b"\n"


def encoded(value: Any) -> bytes:
    """Encode a value as JSON. Lone surrogates are replaced with `?`, because UTF-8 cannot contain
    them."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_replace_surrogates(msgspec.to_builtins(value, enc_hook=_decode_raw)))


def tool_use(call_id: str, name: str, args: dict[str, Any] | None) -> ToolUseBlock:
    """Return the `tool_use` block of a call, with Claude's name and input for the tool.

    If `args` is None, the input is `{}`. If `args` cannot be encoded, the input is `{}` too, and
    `name` is used unchanged.
    """
    try:
        claude_name, claude_input = claude_tool(name, args or {})
        return ToolUseBlock(call_id, claude_name, Raw(encoded(claude_input if args is not None else {})))
    except (RecursionError, ValueError):
        return ToolUseBlock(call_id, name, Raw(b"{}"))


def _decode_raw(raw: Any) -> Any:
    return msgspec.json.decode(raw)


def _replace_surrogates(value: Any) -> Any:
    """Replace lone surrogates with `?` in all strings of a value, including the keys of
    dictionaries."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_surrogates(item) for item in value]
    return value
