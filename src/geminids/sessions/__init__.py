"""Work with stored sessions: find, load, follow, lock, fork and rescue them.

This package also reads and writes resume lines: lines of chat messages that contain the id of a
session.

    from geminids import sessions

    for info in sessions.find("repo", limit=10):
        print(info.updated, info.id, info.title)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geminids.errors import SessionBusy, SessionDamaged, SessionError, SessionNotFound

if TYPE_CHECKING:
    from geminids.sessions.finder import SessionInfo, exists, find, journal_of
    from geminids.sessions.follow import Follower
    from geminids.sessions.loader import Session, load, locate
    from geminids.sessions.lock import Holder, Lock, hold, try_hold
    from geminids.sessions.repair.rescue import Rescue, fork, rescue
    from geminids.sessions.resume_token import ResumeToken, extract_resume_token, format_resume_line

__all__ = [
    "Follower",
    "Holder",
    "Lock",
    "Rescue",
    "ResumeToken",
    "Session",
    "SessionBusy",
    "SessionDamaged",
    "SessionError",
    "SessionInfo",
    "SessionNotFound",
    "exists",
    "extract_resume_token",
    "find",
    "fork",
    "format_resume_line",
    "hold",
    "journal_of",
    "load",
    "locate",
    "rescue",
    "try_hold",
]

_MODULES = {
    "follow": ("Follower",),
    "finder": ("SessionInfo", "exists", "find", "journal_of"),
    "loader": ("Session", "load", "locate"),
    "lock": ("Holder", "Lock", "hold", "try_hold"),
    "repair.rescue": ("Rescue", "fork", "rescue"),
    "resume_token": ("ResumeToken", "extract_resume_token", "format_resume_line"),
}


def __getattr__(name: str) -> Any:
    # Import the modules on first use: before a run starts the CLI, it needs only the lock.
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(import_module(f"geminids.sessions.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'geminids.sessions' has no attribute {name!r}")
