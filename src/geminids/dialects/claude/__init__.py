"""Claude's formats: messages of a conversation, live lines of a run, session files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminids.dialects.claude.conversation import (
        Block,
        ClaudeMessage,
        Image,
        Source,
        Text,
        Thinking,
        ToolResult,
        ToolUse,
        Usage,
        as_dict,
        message,
        messages,
    )
    from geminids.dialects.claude.encoder import Encoder
    from geminids.dialects.claude.execute_result import Executed, executed
    from geminids.dialects.claude.session_file import transcript

__all__ = [
    "Block",
    "ClaudeMessage",
    "Encoder",
    "Executed",
    "Image",
    "Source",
    "Text",
    "Thinking",
    "ToolResult",
    "ToolUse",
    "Usage",
    "as_dict",
    "executed",
    "message",
    "messages",
    "transcript",
]

_HOME = {
    "Executed": "execute_result",
    "Encoder": "encoder",
    "executed": "execute_result",
    "transcript": "session_file",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'geminids.dialects.claude' has no attribute {name!r}")
    return getattr(import_module(f"geminids.dialects.claude.{_HOME.get(name, 'conversation')}"), name)
