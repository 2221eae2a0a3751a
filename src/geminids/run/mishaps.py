"""Endings of runs that went wrong on our side of the pipe: each is told as an ending, none is raised."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from geminids.errors import SessionError
from geminids.log import get_logger
from geminids.outcome import Failure, FailureKind
from geminids.wire.endings import Ending
from geminids.wire.hints import hint_for

__all__ = ["cannot_lock", "our_fault", "spawn_failed"]

_log = get_logger("run")

_TOO_MANY_FILES = "Too many files are open: raise the limit (ulimit -n), or close some and run fewer at once."


def our_fault(error: Exception, redacted: Callable[[str], str]) -> Ending:
    """A mistake of ours must not cost the caller the ending."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    _log.error("geminids itself failed", error=error)
    message = redacted(f"geminids itself failed: {type(error).__name__}: {error}")
    failure = Failure(kind="protocol", message=message, retryable=False, hint=hint_for("protocol"))
    return Ending("failed", message, failure)


def cannot_lock(error: SessionError) -> Ending:
    """The session could not be held: its folder cannot be used."""
    hint = error.hint or hint_for("config")
    failure = Failure(kind="config", message=error.message, retryable=False, hint=hint)
    return Ending("failed", error.message, failure)


def spawn_failed(error: OSError, cwd: str) -> Ending:
    """The system said no: which of CLI, folder and system is it?"""
    kind: FailureKind = "crashed"
    message = f"the CLI could not be started: {error.strerror or error}"
    if not os.path.isdir(cwd) or not os.access(cwd, os.X_OK):
        kind, message = "bad_option", f"cwd: {cwd} is gone or cannot be entered"
    elif error.errno == errno.E2BIG:
        kind, message = "bad_option", "env: the environment is too large for this system"
    elif isinstance(error, (FileNotFoundError, PermissionError)):
        kind = "cli_missing"
    hint = _TOO_MANY_FILES if error.errno in (errno.EMFILE, errno.ENFILE) else hint_for(kind)
    failure = Failure(kind=kind, message=message, retryable=kind == "crashed", hint=hint)
    return Ending("failed", message, failure)
