"""Run Gemini CLI from Python, and see what it did, what it cost and why it ended.

    import geminids

    result = geminids.ask_sync("What does this repo do?", cwd="repo")
    print(result.answer if result.ok else result.failure.hint)

Each name is imported when it is first used, so `import geminids` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geminids.version import __version__

if TYPE_CHECKING:
    from geminids.client import ask, ask_sync, open_run, stream_sync
    from geminids.errors import GeminidsError, OptionsError, RunFailed
    from geminids.events.cost import Cost, ModelCost
    from geminids.events.model import (
        AnyEvent,
        Change,
        Decision,
        EndedProcess,
        Event,
        Finished,
        ModelUsage,
        Notice,
        PermissionAsked,
        PermissionDecided,
        Retry,
        SessionStart,
        Started,
        Text,
        Thought,
        TokensUsed,
        ToolFinished,
        ToolStarted,
        Turn,
        Usage,
        decode_event,
        encode_event,
    )
    from geminids.events.stall import Stall, StallProcess
    from geminids.options import McpServer, Options, Permissions
    from geminids.outcome import Failure
    from geminids.process.hardening import protect_host
    from geminids.run.result import Result
    from geminids.run.run import Run
    from geminids.sessions.resume_token import ResumeToken, extract_resume_token, format_resume_line
    from geminids.spending import Budget, ModelRate, RateTier
    from geminids.warm.chat import Chat
    from geminids.warm.chat_turn import ChatTurn
    from geminids.warm.permissions.answer import PermissionAnswer
    from geminids.warm.pool import Pool, ProcessStatus

__all__ = [
    "AnyEvent",
    "Budget",
    "Change",
    "Chat",
    "ChatTurn",
    "Cost",
    "Decision",
    "EndedProcess",
    "Event",
    "Failure",
    "Finished",
    "GeminidsError",
    "McpServer",
    "ModelCost",
    "ModelRate",
    "ModelUsage",
    "Notice",
    "Options",
    "OptionsError",
    "PermissionAnswer",
    "PermissionAsked",
    "PermissionDecided",
    "Permissions",
    "Pool",
    "ProcessStatus",
    "RateTier",
    "Result",
    "ResumeToken",
    "Retry",
    "Run",
    "RunFailed",
    "SessionStart",
    "Stall",
    "StallProcess",
    "Started",
    "Text",
    "Thought",
    "TokensUsed",
    "ToolFinished",
    "ToolStarted",
    "Turn",
    "Usage",
    "__version__",
    "ask",
    "ask_sync",
    "decode_event",
    "encode_event",
    "extract_resume_token",
    "format_resume_line",
    "open_run",
    "protect_host",
    "stream_sync",
]

_NAMES_BY_MODULE = {
    "geminids.errors": ("GeminidsError", "OptionsError", "RunFailed"),
    "geminids.events.cost": ("Cost", "ModelCost"),
    "geminids.events.stall": ("Stall", "StallProcess"),
    "geminids.options": ("McpServer", "Options", "Permissions"),
    "geminids.outcome": ("Failure",),
    "geminids.process.hardening": ("protect_host",),
    "geminids.spending": ("Budget", "ModelRate", "RateTier"),
    "geminids.client": ("ask", "ask_sync", "open_run", "stream_sync"),
    "geminids.run.result": ("Result",),
    "geminids.run.run": ("Run",),
    "geminids.warm.chat": ("Chat",),
    "geminids.warm.permissions.answer": ("PermissionAnswer",),
    "geminids.warm.pool": ("Pool", "ProcessStatus"),
    "geminids.warm.chat_turn": ("ChatTurn",),
    "geminids.sessions.resume_token": ("ResumeToken", "extract_resume_token", "format_resume_line"),
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ("adapters", "config", "dialects", "sessions"):  # public packages
        return import_module(f"geminids.{name}")
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module 'geminids' has no attribute {name!r}")
    value = getattr(import_module(_MODULES.get(name, "geminids.events.model")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
