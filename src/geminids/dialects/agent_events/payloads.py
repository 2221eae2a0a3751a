"""Convert thoughts, tools, permissions and notices to SubLang's payloads and geminids' metadata."""

from __future__ import annotations

from typing import Any

from geminids.dialects.agent_events.model import (
    Error,
    Metadata,
    PermissionRequest,
    Thinking,
    ToolResult,
    ToolUse,
)
from geminids.events.model import (
    Notice,
    PermissionAsked,
    PermissionDecided,
    Thought,
    ToolFinished,
    ToolStarted,
)

__all__ = [
    "decision_of",
    "is_failed_request",
    "notice_of",
    "request_of",
    "result_of",
    "thinking_of",
    "use_of",
]

_STATUS = {"ok": "success", "failed": "error", "denied": "denied", "cancelled": "error"}


def thinking_of(thought: Thought) -> tuple[Thinking, Metadata | None]:
    summary = ": ".join(part for part in (thought.subject, thought.text) if part)
    return Thinking(summary=summary), _if_any(parent_tool_use_id=thought.parent)


def use_of(tool: ToolStarted | ToolFinished) -> tuple[ToolUse, Metadata | None]:
    """Return the payload and the metadata for the start of a tool call.

    If no `ToolStarted` was reported, the payload is built from `ToolFinished`.
    """
    title = tool.title if isinstance(tool, ToolStarted) else None
    use = ToolUse(tool_name=tool.name, tool_use_id=tool.id, input=tool.input or {}, description=title or None)
    return use, _if_any(parent_tool_use_id=tool.parent)


def result_of(tool: ToolFinished, *, with_input: bool) -> tuple[ToolResult, Metadata | None]:
    """Return the payload and the metadata for the result of a call. If the call failed and reported
    an error, the payload contains the error in place of the output. With `with_input`, the metadata
    contains the input of the call."""
    output = tool.output if tool.output is not None else tool.error
    result = ToolResult(
        tool_use_id=tool.id,
        tool_name=tool.name,
        status=_STATUS[tool.status],
        output=output if tool.status == "ok" or tool.error is None else tool.error,
        duration_ms=tool.duration_ms,
    )
    metadata = _if_any(
        parent_tool_use_id=tool.parent,
        input=tool.input if with_input else None,
        cancelled=tool.status == "cancelled" or None,
        exit_code=tool.exit_code,
        changes=tool.changes or None,
    )
    return result, metadata


def request_of(
    asked: PermissionAsked, tool_input: dict[str, Any] | None
) -> tuple[PermissionRequest, Metadata | None]:
    """Return the payload and the metadata of a permission request. `tool_input` is the input of the
    call. If it is None or empty, the input is taken from the request."""
    request = PermissionRequest(
        tool_name=asked.tool,
        tool_use_id=asked.id,
        input=tool_input or _asked_input(asked),
        reason=asked.title or None,
    )
    metadata = _if_any(
        parent_tool_use_id=asked.parent, changes=asked.changes or None, always=asked.always or None
    )
    return request, metadata


def decision_of(event: PermissionDecided) -> dict[str, str]:
    """Return the payload of the event `geminids:permission_decided`. geminids adds this type
    because SubLang has no event for a decision."""
    fields = {"toolName": event.tool, "toolUseId": event.id, "decision": event.decision, "by": event.by}
    return fields if event.reason is None else {**fields, "reason": event.reason}


def _if_any(**known: Any) -> Metadata | None:
    return Metadata(**known) if any(value is not None for value in known.values()) else None


def _asked_input(asked: PermissionAsked) -> dict[str, Any]:
    """Return the input of a tool call as its permission request reports it, with the CLI's argument
    names. Return an empty dict if the request contains neither a command nor a path."""
    if asked.command is not None:
        return {"command": asked.command}
    if len(asked.paths) == 1:
        return {"file_path": asked.paths[0]}
    return {"paths": list(asked.paths)} if asked.paths else {}


_BAD_LINES = ("noise", "encoding", "protocol", "line_too_long")
_FAILED_REQUESTS = ("retry", "attempt", "gave_up", "api_error")
# Codes of notices about errors of the CLI. All other notices are not about errors of the agent.
_CLI_ERRORS = (*_FAILED_REQUESTS, "cli", "loop", "mcp", "resume_failed")


def is_failed_request(notice: Notice) -> bool:
    """Return whether the notice reports that the API rejected a request. The cost of such a request
    is unknown."""
    return notice.code in _FAILED_REQUESTS


def notice_of(notice: Notice) -> tuple[str, Any, Metadata | None] | None:
    """Convert a notice to an event, and return the event's type, payload and metadata.

    A notice about an invalid line is always converted. For all other notices of the level `debug`
    or `info`, return None.
    """
    if notice.code in _BAD_LINES:
        return "error", Error(code="NDJSON_PARSE_ERROR", message=notice.message, recoverable=True), None
    if notice.level not in ("warning", "error"):
        return None
    if notice.code not in _CLI_ERRORS:
        fields: dict[str, Any] = {"level": notice.level, "code": notice.code, "message": notice.message}
        if notice.request is not None:
            fields["request"] = notice.request
        return "geminids:notice", fields, None
    status = notice.retry.http_status if notice.retry else None
    error = Error(code=f"GEMINI_{notice.code.upper()}", message=notice.message, recoverable=True)
    return "error", error, None if status is None else Metadata(http_status=status)
