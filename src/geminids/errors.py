"""All errors that geminids raises.

    GeminidsError
    ├── OptionsError           invalid options; raised before anything starts, lists every problem
    ├── KeyProblem             the API key cannot be read from the given file or keyring
    ├── ScriptError            a gateway script cannot be read
    ├── SessionError           a stored session cannot be read, locked, copied or written
    │   ├── SessionNotFound    no such session; lists the searched folders and similar ids
    │   ├── SessionDamaged     a session file cannot be read, or is damaged
    │   └── SessionBusy        another run is using the session; `holder` describes that run
    ├── ToolchainError         Gemini CLI or Node cannot be found, installed or used
    │   ├── CliMissing         Gemini CLI was not found; lists the searched places
    │   ├── NodeMissing        no Node can run Gemini CLI
    │   └── InstallFailed      the installation failed; `output` is what npm or pip printed
    └── RunFailed              raised only by `Result.raise_for_failure()`; `result` is the result

A run that fails raises no error by itself: see `Result.outcome` and `Result.failure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "CliMissing",
    "GeminidsError",
    "InstallFailed",
    "KeyProblem",
    "NodeMissing",
    "OptionsError",
    "RunFailed",
    "ScriptError",
    "SessionBusy",
    "SessionDamaged",
    "SessionError",
    "SessionNotFound",
    "ToolchainError",
]


class GeminidsError(Exception):
    """Base class of all errors of geminids.

    `message` says what happened. `hint` is one sentence that says what to do, or None if there is
    nothing to suggest.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled to send them to another process (worker pools, pytest-xdist). Without
        # this method, unpickling would fail: it would call the constructor with `args`, but the
        # constructor has other parameters.
        return _rebuild, (type(self), self.__dict__.copy())

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


def _rebuild(kind: type[GeminidsError], state: dict[str, Any]) -> GeminidsError:
    error = kind.__new__(kind)
    Exception.__init__(error, state.get("message", ""))
    error.__dict__.update(state)
    return error


class OptionsError(GeminidsError):
    """Some options are not valid. `problems` contains one pair for each problem: the name of the
    option, and what is wrong with its value.
    """

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {name}: {problem}" for name, problem in self.problems)
        count = "1 option is" if len(self.problems) == 1 else f"{len(self.problems)} options are"
        super().__init__(f"{count} not valid:\n{lines}")


class KeyProblem(GeminidsError):
    """The API key cannot be read from the given file or keyring.

    The message never contains the text that was read, because this text could be the key.
    """


class ScriptError(GeminidsError):
    """A gateway script (prepared answers in place of a model) cannot be read. `where` is the path
    of the script, with the line number if it is known.
    """

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.where = where


class SessionError(GeminidsError):
    """A stored session cannot be read, locked, copied or written."""


class SessionNotFound(SessionError):
    """No session with the given id exists. `looked` lists the folders that were searched. `nearest`
    lists the ids of stored sessions that are similar to the given id.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        looked: Sequence[str] = (),
        nearest: Sequence[str] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.looked = tuple(looked)
        self.nearest = tuple(nearest)


class SessionDamaged(SessionError):
    """A session file cannot be read, is not a session, or is damaged. `file` is the path of the
    file.
    """

    def __init__(self, message: str, *, file: str, hint: str | None = None) -> None:
        super().__init__(f"{file}: {message}", hint=hint)
        self.file = file


class SessionBusy(SessionError):
    """Another run is using the session. `holder` describes that run and, if it is known, the time
    at which that run locked the session.
    """

    def __init__(self, session_id: str, *, holder: Any) -> None:
        super().__init__(
            f"the session {session_id} is in use by {holder}", hint="Wait until that run ends, or stop it."
        )
        self.session_id = session_id
        self.holder = holder


class ToolchainError(GeminidsError):
    """Gemini CLI or Node cannot be found, installed or used. `looked` lists the places that were
    searched."""

    def __init__(self, message: str, *, hint: str | None = None, looked: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.looked = tuple(looked)


class CliMissing(ToolchainError):
    """Gemini CLI was not found."""


class NodeMissing(ToolchainError):
    """No Node.js was found that can run Gemini CLI."""


class InstallFailed(ToolchainError):
    """The installation of Gemini CLI or Node failed. `output` is the end of what npm or pip
    printed; empty if there is no such output.
    """

    def __init__(self, message: str, *, hint: str | None = None, output: str = "") -> None:
        super().__init__(message, hint=hint)
        self.output = output


class RunFailed(GeminidsError):
    """A run failed, and the caller has called `Result.raise_for_failure()`. Nothing else raises
    this error. `result` is the result of the run.
    """

    def __init__(self, message: str, *, result: Any, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result = result
