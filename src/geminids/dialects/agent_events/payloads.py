"""Thoughts, tools and permissions as SubLang's payloads, each with what geminids knows besides."""

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

__all__ = ["decided", "is_failed_request", "request_of", "result_of", "thinking_of", "told_of", "use_of"]

_STATUS = {"ok": "success", "failed": "error", "denied": "denied", "cancelled": "error"}


def thinking_of(thought: Thought) -> tuple[Thinking, Metadata | None]:
    summary = ": ".join(part for part in (thought.subject, thought.text) if part)
    return Thinking(summary=summary), _if_any(parent_tool_use_id=thought.parent)


def use_of(tool: ToolStarted | ToolFinished) -> tuple[ToolUse, Metadata | None]:
    """The call; of one whose beginning was not told, what its end knows of it."""
    title = tool.title if isinstance(tool, ToolStarted) else None
    use = ToolUse(tool_name=tool.name, tool_use_id=tool.id, input=tool.input or {}, description=title or None)
    return use, _if_any(parent_tool_use_id=tool.parent)


def result_of(tool: ToolFinished, *, tells_input: bool) -> tuple[ToolResult, Metadata | None]:
    """What became of a call. The reason of a failure goes before what the model was told of it."""
    told = tool.output if tool.output is not None else tool.error
    result = ToolResult(
        tool_use_id=tool.id,
        tool_name=tool.name,
        status=_STATUS[tool.status],
        output=told if tool.status == "ok" or tool.error is None else tool.error,
        duration_ms=tool.duration_ms,
    )
    about = _if_any(
        parent_tool_use_id=tool.parent,
        input=tool.input if tells_input else None,
        cancelled=tool.status == "cancelled" or None,
        exit_code=tool.exit_code,
        changes=tool.changes or None,
    )
    return result, about


def request_of(
    asked: PermissionAsked, given: dict[str, Any] | None
) -> tuple[PermissionRequest, Metadata | None]:
    """A question; `given` is the input of the call, where that is known."""
    request = PermissionRequest(
        tool_name=asked.tool,
        tool_use_id=asked.id,
        input=given or _wanted(asked),
        reason=asked.title or None,
    )
    about = _if_any(
        parent_tool_use_id=asked.parent, changes=asked.changes or None, always=asked.always or None
    )
    return request, about


def decided(event: PermissionDecided) -> dict[str, str]:
    """The answer to a question, which SubLang has no event for."""
    told = {"toolName": event.tool, "toolUseId": event.id, "decision": event.decision, "by": event.by}
    return told if event.reason is None else {**told, "reason": event.reason}


def _if_any(**known: Any) -> Metadata | None:
    return Metadata(**known) if any(value is not None for value in known.values()) else None


def _wanted(asked: PermissionAsked) -> dict[str, Any]:
    """What a question says of the call's input, under the names that the CLI's tools have for it."""
    if asked.command is not None:
        return {"command": asked.command}
    if len(asked.paths) == 1:
        return {"file_path": asked.paths[0]}
    return {"paths": list(asked.paths)} if asked.paths else {}


_BAD_LINES = ("noise", "encoding", "protocol", "line_too_long")
_FAILED_REQUESTS = ("retry", "attempt", "gave_up", "api_error")
# What the CLI itself complains about; the rest of our notices are no errors of the agent.
_COMPLAINTS = (*_FAILED_REQUESTS, "cli", "loop", "mcp", "resume_failed")


def is_failed_request(notice: Notice) -> bool:
    """Whether the API has refused a request, so that nobody knows what it cost."""
    return notice.code in _FAILED_REQUESTS


def told_of(notice: Notice) -> tuple[str, Any, Metadata | None] | None:
    """Type, payload and metadata; None for what is not worth an event (`debug` and `info`, but for bad lines)."""
    if notice.code in _BAD_LINES:
        return "error", Error(code="NDJSON_PARSE_ERROR", message=notice.message, recoverable=True), None
    if notice.level not in ("warning", "error"):
        return None
    if notice.code not in _COMPLAINTS:
        news: dict[str, Any] = {"level": notice.level, "code": notice.code, "message": notice.message}
        if notice.request is not None:
            news["request"] = notice.request
        return "geminids:notice", news, None
    status = notice.retry.http_status if notice.retry else None
    error = Error(code=f"GEMINI_{notice.code.upper()}", message=notice.message, recoverable=True)
    return "error", error, None if status is None else Metadata(http_status=status)
