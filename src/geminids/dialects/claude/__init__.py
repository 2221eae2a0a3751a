"""Convert stored conversations and runs to formats of Claude Code and agent-cli-sdk.

`message` and `messages` return agent-cli-sdk's `UnifiedMessage`. `Encoder` writes the lines that
Claude Code prints during a run. `transcript` writes a session file of Claude Code. `executed`
returns what agent-cli-sdk's `execute` returns for a run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminids.dialects.claude.conversation import (
        Image,
        Source,
        Text,
        Thinking,
        ToolResult,
        ToolUse,
        UnifiedContent,
        UnifiedMessage,
        Usage,
        as_dict,
        message,
        messages,
    )
    from geminids.dialects.claude.encoder import Encoder
    from geminids.dialects.claude.execute_result import Executed, executed
    from geminids.dialects.claude.session_file import transcript

__all__ = [
    "Encoder",
    "Executed",
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
    "executed",
    "message",
    "messages",
    "transcript",
]

# The module of each public name that is not in the module `conversation`.
_MODULES = {
    "Executed": "execute_result",
    "Encoder": "encoder",
    "executed": "execute_result",
    "transcript": "session_file",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'geminids.dialects.claude' has no attribute {name!r}")
    return getattr(import_module(f"geminids.dialects.claude.{_MODULES.get(name, 'conversation')}"), name)
