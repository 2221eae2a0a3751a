"""All errors that geminids raises.

    GeminidsError
    ├── OptionsError           invalid options; lists every problem, before anything starts
    ├── KeyProblem             the API key cannot be read from the given file or keyring
    ├── ScriptError            a gateway script cannot be read
    ├── SessionError           a stored session cannot be locked, copied or written
    │   ├── SessionNotFound    no such session; lists the folders searched and similar ids
    │   ├── SessionDamaged     a file is not a session, or is damaged
    │   └── SessionBusy        another run is using the session; names it
    ├── ToolchainError         Gemini CLI or Node cannot be found, installed or used
    │   ├── CliMissing         Gemini CLI was not found; lists the places searched
    │   ├── NodeMissing        no Node can run Gemini CLI
    │   └── InstallFailed      npm or pip failed; keeps its output
    └── RunFailed              raised only by `Result.raise_for_failure()`; keeps the result

A run that fails does not raise. See `Result.outcome` and `Result.failure`.
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
    """Base class of all errors. `hint` is one sentence that says what to do."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled between processes (workers, pytest-xdist). The default would call the
        # constructor with `args`, which does not match its parameters.
        return _rebuild, (type(self), self.__dict__.copy())

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


def _rebuild(kind: type[GeminidsError], state: dict[str, Any]) -> GeminidsError:
    error = kind.__new__(kind)
    Exception.__init__(error, state.get("message", ""))
    error.__dict__.update(state)
    return error


class OptionsError(GeminidsError):
    """Invalid options. `problems` lists them as (name of the option, what is wrong)."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {name}: {problem}" for name, problem in self.problems)
        count = "1 option is" if len(self.problems) == 1 else f"{len(self.problems)} options are"
        super().__init__(f"{count} not valid:\n{lines}")


class KeyProblem(GeminidsError):
    """The API key cannot be read from its source. The message contains nothing of what was read."""


class ScriptError(GeminidsError):
    """A gateway script cannot be read. `where` is the file and line, if known."""

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.where = where


class SessionError(GeminidsError):
    """A stored session cannot be read, locked, copied or written."""


class SessionNotFound(SessionError):
    """No such session. `looked` lists the folders that were searched, `nearest` similar ids."""

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
    """A file is not a session, or is damaged. `file` is its path."""

    def __init__(self, message: str, *, file: str, hint: str | None = None) -> None:
        super().__init__(f"{file}: {message}", hint=hint)
        self.file = file


class SessionBusy(SessionError):
    """Another run is using this session. `holder` names it and says since when."""

    def __init__(self, session_id: str, *, holder: Any) -> None:
        super().__init__(f"the session {session_id} is in use by {holder}", hint="Wait for it, or stop it.")
        self.session_id = session_id
        self.holder = holder


class ToolchainError(GeminidsError):
    """Gemini CLI or Node cannot be used. `looked` lists the places that were searched."""

    def __init__(self, message: str, *, hint: str | None = None, looked: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.looked = tuple(looked)


class CliMissing(ToolchainError):
    """Gemini CLI was not found."""


class NodeMissing(ToolchainError):
    """No Node was found that can run the CLI."""


class InstallFailed(ToolchainError):
    """npm or pip failed. `output` is the end of its output."""

    def __init__(self, message: str, *, hint: str | None = None, output: str = "") -> None:
        super().__init__(message, hint=hint)
        self.output = output


class RunFailed(GeminidsError):
    """A run did not succeed. Raised only by `Result.raise_for_failure()`; `result` is that result."""

    def __init__(self, message: str, *, result: Any, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result = result
