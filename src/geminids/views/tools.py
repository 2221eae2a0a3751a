"""The mark of a tool call in terminals and documents, and its color."""

from __future__ import annotations

from geminids.events.model import ToolFinished
from geminids.sessions.transcript import ToolEntry

__all__ = ["tool_mark", "tool_state"]

_MARKS = {
    "ok": ("✓", "green"),
    "failed": ("✗", "red"),
    "denied": ("⊘", "yellow"),
    "cancelled": ("◌", "dim"),
    "unfinished": ("◌", "dim"),
}


def tool_state(tool: ToolFinished | ToolEntry) -> str:
    """Return the status of a tool call as people see it.

    For the CLI, a shell command is "ok" as soon as it has run, also if it exits with an error. Here
    such a command has failed.
    """
    return "failed" if tool.status == "ok" and tool.exit_code else tool.status


def tool_mark(tool: ToolFinished | ToolEntry) -> tuple[str, str]:
    """Return the mark of a tool call, and the style of the mark."""
    return _MARKS[tool_state(tool)]
