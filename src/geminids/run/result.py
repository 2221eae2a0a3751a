"""The result of a run, and the endings of runs that failed on our side."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from geminids.errors import RunFailed, SessionError
from geminids.events.accumulator import turns_of
from geminids.events.cost import Cost
from geminids.events.model import Decision, EndedProcess, Finished, Turn, Usage
from geminids.events.stall import Stall
from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.launch.errors import Refused
from geminids.log import get_logger
from geminids.outcome import Failure, FailureKind, Outcome

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar  # without a default before Python 3.13, and nobody asks for it when it runs

    T = TypeVar("T")

__all__ = ["Result", "ending_of_error", "our_fault"]

_log = get_logger("run")

_SHOWN = 200


class Result(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """How a run ended. `ask` never raises for that; `raise_for_failure` does, where you want it."""

    run_id: str
    outcome: Outcome
    failure: Failure | None
    reason: str | None
    text: str
    answer: str
    value: T = None  # type: ignore[assignment]
    """The answer as a schema asked for it, of the caller's own type where one was given; None unless `ok`."""
    session_id: str | None
    clear_session: bool
    usage: Usage | None
    attempts: int
    exit_code: int | None
    duration_ms: int
    ended: tuple[EndedProcess, ...]
    complete: bool
    decisions: tuple[Decision, ...] = ()
    """The audit trail: every permission that was asked for."""
    cost: Cost | None = None
    """What it costs, all attempts together; None where nothing was started."""
    stall: Stall | None = None
    """What a run waited for that was ended for its silence (`idle_timeout`, `start_timeout`)."""
    finish_reason: str | None = None
    """The API's word for the last answer of the main conversation: `STOP`, `MAX_TOKENS`, `SAFETY` and so on."""
    discarded: tuple[int, ...] = ()
    """The numbers of the requests whose answers the CLI discarded. They are paid for."""
    conversation: bytes = b""
    """What `turns` is made of, packed: most callers never ask, and the values would take much more memory."""

    @classmethod
    def of(cls, finished: Finished, conversation: bytes = b"") -> Result:
        given = {name: getattr(finished, name) for name in cls.__struct_fields__ if name != "conversation"}
        return cls(**given, conversation=conversation)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The conversation of the last attempt in its true order (the events come in the order of arrival).

        Made anew each time: keep it in a variable.
        """
        return turns_of(self.text, self.conversation)

    def __repr__(self) -> str:
        # Texts are cut: when asyncio.run is over it formats what its task returned (signal.getsignal makes an
        # enum of the handler, and of that failure a message that is thrown away), all megabytes of it.
        shown = (f"{name}={_short(getattr(self, name))}" for name in self.__struct_fields__)
        return f"Result({', '.join(shown)})"

    @property
    def ok(self) -> bool:
        return self.outcome == "success"

    def raise_for_failure(self) -> Result[T]:
        """Raise `RunFailed` unless the run succeeded; return the result itself, so that calls chain."""
        if self.ok:
            return self
        what = f"{self.outcome} ({self.failure.kind})" if self.failure else self.outcome
        hint = self.failure.hint if self.failure else None
        raise RunFailed(f"{what}: {self.reason or 'no reason known'}", result=self, hint=hint)


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{value[:_SHOWN]!r}... ({len(value)} characters)"
    return repr(value)


_TOO_MANY_FILES = "Too many files are open: raise the limit (ulimit -n), or close some and run fewer at once."


def our_fault(error: Exception, redacted: Callable[[str], str]) -> Ending:
    """A mistake of ours must not cost the caller the ending."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    _log.error("geminids itself failed", error=error)
    message = redacted(f"geminids itself failed: {type(error).__name__}: {error}")
    failure = Failure(kind="protocol", message=message, retryable=False, hint=hint_for("protocol"))
    return Ending("failed", message, failure)


def ending_of_error(error: Exception, cwd: str, redacted: Callable[[str], str]) -> Ending:
    """How a run ends that could not be started."""
    if isinstance(error, Refused):
        return Ending("failed", error.failure.message, error.failure)
    if isinstance(error, SessionError):
        # The session could not be locked: its folder cannot be used.
        hint = error.hint or hint_for("config")
        failure = Failure(kind="config", message=error.message, retryable=False, hint=hint)
        return Ending("failed", error.message, failure)
    if isinstance(error, OSError):
        return _spawn_failed(error, cwd)
    return our_fault(error, redacted)


def _spawn_failed(error: OSError, cwd: str) -> Ending:
    """The system refused: is it the CLI, the folder or the system?"""
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
