"""The result of a run, and the endings of runs that geminids could not start or complete."""

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
    from typing import TypeVar  # no `default` before Python 3.13; only type checkers need it

    T = TypeVar("T")

__all__ = ["Result", "ending_of_error", "our_fault"]

_log = get_logger("run")

_SHOWN = 200


class Result(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The result of a run.

    `ask` returns it for failed runs too. To raise an error for a failed run, call
    `raise_for_failure`.
    """

    run_id: str
    outcome: Outcome
    failure: Failure | None
    """Why the run did not succeed, with a kind and a hint. None only if `outcome` is `success`.

    If a limit or the caller ended the run, the kind is the outcome: `timed_out`, `max_turns`,
    `over_budget` or `interrupted`.
    """
    reason: str | None
    text: str
    answer: str
    value: T = None  # type: ignore[assignment]
    """The answer, converted to a value that matches the schema.

    If the schema is a Python type, the value has that type. None if the run failed or has no
    schema.
    """
    session_id: str | None
    clear_session: bool
    usage: Usage | None
    attempts: int
    exit_code: int | None
    duration_ms: int
    ended: tuple[EndedProcess, ...]
    complete: bool
    decisions: tuple[Decision, ...] = ()
    """Every permission request of the run, with its decision."""
    cost: Cost | None = None
    """The cost of all attempts. None if nothing was started or the cost could not be computed."""
    stall: Stall | None = None
    """What the run waited for when `idle_timeout` or `start_timeout` ended it; otherwise None."""
    finish_reason: str | None = None
    """The reason with which the API ended its last answer in the main conversation.

    It is `STOP` for a complete answer; another example is `MAX_TOKENS`. None if it is unknown.
    """
    discarded: tuple[int, ...] = ()
    """The numbers of the requests whose answers the CLI did not use. They still cost money."""
    conversation: bytes = b""
    """The conversation as compressed data. The property `turns` decodes it on demand."""

    @classmethod
    def of(cls, finished: Finished, conversation: bytes = b"") -> Result:
        fields = {name: getattr(finished, name) for name in cls.__struct_fields__ if name != "conversation"}
        return cls(**fields, conversation=conversation)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The conversation of the last attempt, in the order in which it took place.

        The events of the run can have another order: the order in which they arrived. Each access
        decodes the conversation again, so store it in a variable.
        """
        return turns_of(self.text, self.conversation)

    def __repr__(self) -> str:
        # Truncate texts, which may have megabytes. Python creates this repr even if nobody prints
        # it: when `asyncio.run` ends, it calls signal.getsignal. This function tries to convert the
        # signal handler to an enum, and fails. The error message, which Python discards, contains
        # the repr of the task's result.
        shown = (f"{name}={_short(getattr(self, name))}" for name in self.__struct_fields__)
        return f"Result({', '.join(shown)})"

    @property
    def ok(self) -> bool:
        return self.outcome == "success"

    def raise_for_failure(self) -> Result[T]:
        """Raise `RunFailed` if the run did not succeed. Otherwise return the result itself."""
        if self.ok:
            return self
        kind = self.failure.kind if self.failure else self.outcome
        outcome = self.outcome if kind == self.outcome else f"{self.outcome} ({kind})"
        hint = self.failure.hint if self.failure else None
        raise RunFailed(f"{outcome}: {self.reason or 'unknown reason'}", result=self, hint=hint)


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{value[:_SHOWN]!r}... ({len(value)} characters)"
    return repr(value)


_TOO_MANY_FILES = "Too many files are open: raise the limit (ulimit -n), or run fewer agents at once."


def our_fault(error: Exception, redacted: Callable[[str], str]) -> Ending:
    """Return the ending of a run that failed because of a bug in geminids.

    `redacted` is a function that masks secrets in a text.
    """
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    _log.error("internal error", error=error)
    message = redacted(f"internal error in geminids: {type(error).__name__}: {error}")
    failure = Failure(kind="protocol", message=message, retryable=False, hint=hint_for("protocol"))
    return Ending("failed", message, failure)


def ending_of_error(error: Exception, cwd: str, redacted: Callable[[str], str]) -> Ending:
    """Return the ending of a run that could not be started or completed because of this error.

    `cwd` is the working folder. `redacted` is a function that masks secrets in a text.
    """
    if isinstance(error, Refused):
        return Ending("failed", error.failure.message, error.failure)
    if isinstance(error, SessionError):
        # The session could not be locked, because the folder of the lock files cannot be used.
        hint = error.hint or hint_for("config")
        failure = Failure(kind="config", message=error.message, retryable=False, hint=hint)
        return Ending("failed", error.message, failure)
    if isinstance(error, OSError):
        return _spawn_failed(error, cwd)
    return our_fault(error, redacted)


def _spawn_failed(error: OSError, cwd: str) -> Ending:
    """Return the ending of a run whose process could not be started. `cwd` is its working folder.

    The cause can be the CLI, the working folder, the environment or the system.
    """
    kind: FailureKind = "crashed"
    message = f"cannot start the CLI: {error.strerror or error}"
    if not os.path.isdir(cwd) or not os.access(cwd, os.X_OK):
        kind, message = "bad_option", f"`cwd`: the folder {cwd} does not exist, or you may not enter it"
    elif error.errno == errno.E2BIG:
        kind, message = "bad_option", "`env`: the environment variables are too large for this system"
    elif isinstance(error, (FileNotFoundError, PermissionError)):
        kind = "cli_missing"
    hint = _TOO_MANY_FILES if error.errno in (errno.EMFILE, errno.ENFILE) else hint_for(kind)
    failure = Failure(kind=kind, message=message, retryable=kind == "crashed", hint=hint)
    return Ending("failed", message, failure)
