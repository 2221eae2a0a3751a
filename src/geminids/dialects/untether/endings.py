"""What Untether says of a run that did not succeed."""

from __future__ import annotations

import re
import signal

from geminids.events.model import Finished

__all__ = ["error_of", "exited_without_result"]

_EXCERPT = 300
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>)]+")
_PATH = re.compile(r"(?<![\w.~/\\\]])(?:~?/|\.{1,2}/|[A-Za-z]:\\)[^\s:;,\"'<>()]+")


def error_of(event: Finished) -> str | None:
    """Why, in words that name the status; None for a success."""
    if event.outcome == "success":
        return None
    if not _has_no_result(event):
        kind = f" ({event.failure.kind})" if event.failure else ""
        why = event.failure.message if event.failure else event.reason
        return f"gemini {event.outcome}{kind}" + (f": {why}" if why else "")
    parts = ["gemini finished without a result event"]
    if exited_without_result(event):
        parts = [f"gemini failed ({_exit(event.exit_code)})."]
    if event.session_id:
        parts.append(f"session: {event.session_id[:8]}")
    if event.failure and event.failure.stderr_tail:
        parts.append(_public(event.failure.stderr_tail))
    return "\n".join(part for part in parts if part)


def exited_without_result(event: Finished) -> bool:
    """Whether the process failed before it could say how the run ended: worth a warning of its own."""
    return _has_no_result(event) and event.exit_code not in (0, None)


def _has_no_result(event: Finished) -> bool:
    return event.failure is not None and event.failure.kind in ("cut_off", "crashed")


def _exit(code: int | None) -> str:
    try:
        return f"rc={code}, {signal.Signals(-(code or 0)).name}"
    except ValueError:
        return f"rc={code}"


def _public(stderr: str) -> str:
    """The beginning, without the places of this machine: it may be shown in a chat."""
    return _PATH.sub("[path]", _URL.sub("[url]", stderr))[:_EXCERPT].strip()
