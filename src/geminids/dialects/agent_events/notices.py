"""Our notices as SubLang's events: errors that the run goes on after, or news of geminids' own."""

from __future__ import annotations

from typing import Any

from geminids.dialects.agent_events.model import Error, Metadata
from geminids.events.model import Notice

__all__ = ["is_failed_request", "told_of"]

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
