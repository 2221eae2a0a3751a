"""SubLang's agent events: the nine types of events with their payloads, and functions that encode
and decode them."""

from __future__ import annotations

from typing import Any

import msgspec

from geminids.dialects.agent_events.usage import AgentUsage
from geminids.events.encoding import encode_json
from geminids.events.model import Change

__all__ = [
    "PAYLOADS",
    "AgentCapabilities",
    "AgentEvent",
    "Done",
    "Error",
    "Init",
    "Metadata",
    "PermissionRequest",
    "Text",
    "TextDelta",
    "Thinking",
    "ToolResult",
    "ToolUse",
    "decode_agent_event",
    "encode_agent_event",
    "is_agent_event",
]


class _Payload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class AgentCapabilities(_Payload, frozen=True, kw_only=True):
    """Whether the agent's tools are known, and where this information comes from.

    `tools_source` is `gateway` if the gateway read the tools from the CLI's first request. It is
    `unavailable` if the tools are not known.
    """

    tools_known: bool
    tools_source: str
    disallowed_tools: tuple[str, ...] | None = None


class Init(_Payload, frozen=True, kw_only=True):
    """The start of the run."""

    model: str
    cwd: str
    tools: tuple[str, ...]
    capabilities: Any = None
    """`AgentCapabilities` in events of geminids; events of other agents may contain another value."""


class Text(_Payload, frozen=True, kw_only=True):
    """A complete message of the agent."""

    content: str


class TextDelta(_Payload, frozen=True, kw_only=True, gc=False):
    """A piece of a message, as it arrives."""

    delta: str


class Thinking(_Payload, frozen=True, kw_only=True):
    """A thought of the model, as a summary."""

    summary: str


class ToolUse(_Payload, frozen=True, kw_only=True):
    """The agent calls a tool."""

    tool_name: str
    tool_use_id: str
    input: dict[str, Any]
    description: str | None = None


class ToolResult(_Payload, frozen=True, kw_only=True):
    """The result of a tool call. `status` is `success`, `error` or `denied`."""

    tool_use_id: str
    tool_name: str
    status: str
    output: Any
    duration_ms: float | None = None


class PermissionRequest(_Payload, frozen=True, kw_only=True):
    """A tool call needs permission. The run waits for the decision."""

    tool_name: str
    tool_use_id: str
    input: dict[str, Any]
    reason: str | None = None


class Error(_Payload, frozen=True, kw_only=True):
    """An error of the run. `recoverable` is True if the run continues."""

    message: str
    recoverable: bool
    code: str | None = None


class Done(_Payload, frozen=True, kw_only=True):
    """The end of the run. `status` is `success`, `error`, `interrupted`, `max_turns` or
    `max_budget`."""

    status: str
    usage: AgentUsage
    duration_ms: float
    result: str | None = None
    resume_token: str | None = None


class Metadata(_Payload, frozen=True, kw_only=True):
    """Details that geminids adds to an event. Programs that read the events may ignore these
    details."""

    run_id: str | None = None
    cli_version: str | None = None
    transport: str | None = None
    approval: str | None = None
    parent_tool_use_id: str | None = None
    """The id of the tool call that started the subagent, if the event belongs to a subagent."""
    input: dict[str, Any] | None = None
    """The input of a tool call. It is added to the result of the call if it was not known when the
    call started. This happens on the warm transport, where the CLI is already running before the
    run starts."""
    cancelled: bool | None = None
    exit_code: int | None = None
    changes: tuple[Change, ...] | None = None
    always: str | None = None
    outcome: str | None = None
    reason: str | None = None
    failure: str | None = None
    hint: str | None = None
    retryable: bool | None = None
    http_status: int | None = None


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One event. The format is the same for all agents.

    `payload` is one of the nine structs in `PAYLOADS`. If `type` has the form `<namespace>:<name>`,
    `payload` can be any value.

    >>> event = AgentEvent(type="text", agent="a", timestamp=1, session_id="s", payload=Text(content="hi"))
    >>> encode_agent_event(event)
    b'{"type":"text","agent":"a","timestamp":1,"sessionId":"s","payload":{"content":"hi"}}'
    """

    type: str
    agent: str
    timestamp: int | float
    session_id: str = msgspec.field(name="sessionId")
    payload: Any
    metadata: Metadata | dict[str, Any] | None = None
    role: str | None = None


PAYLOADS: dict[str, type[_Payload]] = {
    "init": Init,
    "text": Text,
    "text_delta": TextDelta,
    "thinking": Thinking,
    "tool_use": ToolUse,
    "tool_result": ToolResult,
    "permission_request": PermissionRequest,
    "error": Error,
    "done": Done,
}


class _EventLine(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    agent: str
    timestamp: int | float
    session_id: str = msgspec.field(name="sessionId")
    payload: msgspec.Raw
    metadata: dict[str, Any] | None = None
    role: str | None = None


_decoder = msgspec.json.Decoder(_EventLine)


def encode_agent_event(event: AgentEvent) -> bytes:
    """Encode an event as a line of JSON, without the newline."""
    return encode_json(event)


def decode_agent_event(line: bytes | str) -> AgentEvent:
    """Decode an event. For the nine types in `PAYLOADS`, the payload is decoded as the struct of
    its type. Metadata and capabilities become `Metadata` and `AgentCapabilities` if they contain
    only fields of these; those of other agents stay a dict.

    Raises `msgspec.MsgspecError` if the line is not a valid event.
    """
    fields = _decoder.decode(line)
    payload = msgspec.json.decode(fields.payload, type=PAYLOADS.get(fields.type, Any))
    if isinstance(payload, Init):
        capabilities = _as_ours(payload.capabilities, AgentCapabilities)
        payload = msgspec.structs.replace(payload, capabilities=capabilities)
    return AgentEvent(
        type=fields.type,
        agent=fields.agent,
        timestamp=fields.timestamp,
        session_id=fields.session_id,
        payload=payload,
        metadata=_as_ours(fields.metadata, Metadata),
        role=fields.role,
    )


def _as_ours(value: Any, kind: type[_Payload]) -> Any:
    """Return a JSON object as a struct of this kind. Return the value unchanged if the struct cannot
    contain all of it."""
    if not isinstance(value, dict) or not value.keys() <= set(kind.__struct_encode_fields__):
        return value
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return value


def is_agent_event(value: Any) -> bool:
    """Return whether a JSON value is an event. An event is an object with the strings `type`,
    `agent` and `sessionId`, the number `timestamp`, and a `payload` of any type.

    >>> is_agent_event({"type": "text", "agent": "a", "timestamp": 1, "sessionId": "s", "payload": None})
    True
    """
    if not isinstance(value, dict) or "payload" not in value:
        return False
    stamp = value.get("timestamp")
    texts = all(isinstance(value.get(name), str) for name in ("type", "agent", "sessionId"))
    return texts and isinstance(stamp, (int, float)) and not isinstance(stamp, bool)
