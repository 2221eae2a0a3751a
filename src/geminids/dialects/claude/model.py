"""The lines that Claude Code prints live, as values, and how each becomes bytes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from geminids.dialects.claude.tools import claude_tool

__all__ = [
    "Assistant",
    "Denial",
    "ErrorLine",
    "Init",
    "LineIds",
    "Message",
    "ModelTokens",
    "Result",
    "Said",
    "TextBlock",
    "ThinkingBlock",
    "ToolResultBlock",
    "ToolUseBlock",
    "Turnout",
    "Usage",
    "User",
    "encoded",
    "line_of",
    "tool_use",
]

# The release of Claude Code whose lines these are like.
_VERSION = "2.1.240"
_NAMES = uuid.UUID("d7b1f2a4-6e0c-5b39-9a51-47e1b0c8a6d2")
_encode = msgspec.json.Encoder().encode


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens: the cached ones are no part of the input, thinking is part of the output. What is unknown is left out."""

    input_tokens: int | UnsetType = UNSET
    cache_creation_input_tokens: int | UnsetType = UNSET
    cache_read_input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET


class ModelTokens(Struct, frozen=True, gc=False):
    """Tokens of one model in a whole run. The fields are fixed: what is unknown is null."""

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


Said = TextBlock | ThinkingBlock | ToolUseBlock


class Message(Struct, frozen=True, gc=False):
    """A message of the model as its API gives it."""

    id: str
    type: str
    role: str
    model: str
    content: list[Said]
    stop_reason: str | None
    stop_sequence: str | None
    usage: Usage


class Turnout(Struct, frozen=True, gc=False):
    """A message in the user's name: what tools gave."""

    role: str
    content: list[ToolResultBlock]


class Init(Struct, frozen=True, tag_field="type", tag="system"):
    """The first line. Neither the stream nor the journal of Gemini CLI tells its tools, servers and skills."""

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
    def of(cls, *, cwd: str, session_id: str, model: str, mode: str, own: str) -> Init:
        return cls(
            "init", cwd, session_id, [], [], model, mode, [], "none", _VERSION, "default", [], [], [], own
        )


class Assistant(Struct, frozen=True, tag_field="type", tag="assistant", gc=False):
    message: Message
    parent_tool_use_id: str | None
    session_id: str
    uuid: str


class ErrorLine(Struct, frozen=True, tag_field="type", tag="assistant", gc=False):
    """An API failure in the agent's name: nothing that the model has said."""

    message: Message
    parent_tool_use_id: str | None
    session_id: str
    uuid: str
    error: str


class User(Struct, frozen=True, tag_field="type", tag="user", omit_defaults=True, gc=False):
    message: Turnout
    parent_tool_use_id: str | None
    session_id: str
    uuid: str
    tool_use_result: str | UnsetType = UNSET


class Denial(Struct, frozen=True, gc=False):
    tool_name: str
    tool_use_id: str
    tool_input: Raw


class Result(Struct, frozen=True, kw_only=True, tag_field="type", tag="result", omit_defaults=True):
    """The last line."""

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
    model_usage: dict[str, ModelTokens] | UnsetType = field(name="modelUsage", default=UNSET)
    permission_denials: list[Denial]
    structured_output: Any | UnsetType = UNSET
    errors: list[str] | UnsetType = UNSET
    api_error_status: int | UnsetType = UNSET
    terminal_reason: str | UnsetType = UNSET
    uuid: str


class LineIds:
    """Ids of lines and messages. They come from the run's own id: the same events give the same bytes."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id.encode("utf-8", "replace").decode()
        # The last twelve digits count: a hash for each line would take longer than all the rest of it.
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
    """A value as JSON, whatever is in it."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_whole(msgspec.to_builtins(value, enc_hook=_of_raw)))


def tool_use(call_id: str, name: str, given: dict[str, Any] | None) -> ToolUseBlock:
    """A call under Claude's name for the tool, with the input that Claude would give it; none is {}."""
    try:
        own, asked = claude_tool(name, given) if given is not None else (claude_tool(name, {})[0], {})
        return ToolUseBlock(call_id, own, Raw(encoded(asked)))
    except (RecursionError, ValueError):
        return ToolUseBlock(call_id, name, Raw(b"{}"))


def _of_raw(raw: Any) -> Any:
    return msgspec.json.decode(raw)


def _whole(value: Any) -> Any:
    """Without halves of characters, which UTF-8 cannot hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_whole(name): _whole(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return value
