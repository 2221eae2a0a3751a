"""Every error that geminids raises on purpose.

    GeminidsError
    ├── OptionsError           bad options: every problem at once, before anything is spawned
    ├── KeyProblem             an API key that cannot be had from the file or keyring that was named
    ├── ScriptError            a gateway script that cannot be read
    ├── SessionError           a stored session: cannot be locked, copied or written
    │   ├── SessionNotFound    no such session; says where it looked, and what is there
    │   ├── SessionDamaged     a file that is no session, or not one any more
    │   └── SessionBusy        another run is in this session; says which
    ├── ToolchainError         Gemini CLI or Node: not found, not installable, not what it should be
    │   ├── CliMissing         no Gemini CLI was found; says where it looked
    │   ├── NodeMissing        no Node that can run it
    │   └── InstallFailed      npm or pip said no; keeps what it said
    └── RunFailed              raised by `Result.raise_for_failure()` alone; keeps the result

How a run ended is never an exception: it is `Result.outcome` and `Result.failure`.
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
    """The root of the tree. `hint` is one sentence that says what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (workers, pytest-xdist): rebuild from the evidence, not from args.
        return _rebuild, (type(self), self.__dict__.copy())

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


def _rebuild(kind: type[GeminidsError], state: dict[str, Any]) -> GeminidsError:
    error = kind.__new__(kind)
    Exception.__init__(error, state.get("message", ""))
    error.__dict__.update(state)
    return error


class OptionsError(GeminidsError):
    """Bad options. `problems` lists each as (name of the option, what is wrong with it)."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {name}: {what}" for name, what in self.problems)
        count = "1 option is" if len(self.problems) == 1 else f"{len(self.problems)} options are"
        super().__init__(f"{count} not usable:\n{lines}")


class KeyProblem(GeminidsError):
    """An API key that cannot be had from where it should be; never tells anything of what was found there."""


class ScriptError(GeminidsError):
    """A gateway script that cannot be read. `where` is the file and line, if known."""

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.where = where


class SessionError(GeminidsError):
    """A stored session that cannot be had as it was asked for."""


class SessionNotFound(SessionError):
    """No such session. `looked` lists the folders that were searched, `nearest` ids that are alike."""

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
    """A file that is no session. `file` is its path."""

    def __init__(self, message: str, *, file: str, hint: str | None = None) -> None:
        super().__init__(f"{file}: {message}", hint=hint)
        self.file = file


class SessionBusy(SessionError):
    """Another run is in this session. `holder` says which, and since when."""

    def __init__(self, session_id: str, *, holder: Any) -> None:
        super().__init__(f"the session {session_id} is in use by {holder}", hint="Wait for it, or stop it.")
        self.session_id = session_id
        self.holder = holder


class ToolchainError(GeminidsError):
    """Gemini CLI or Node is not as it should be. `looked` lists where we looked."""

    def __init__(self, message: str, *, hint: str | None = None, looked: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.looked = tuple(looked)


class CliMissing(ToolchainError):
    """No Gemini CLI was found."""


class NodeMissing(ToolchainError):
    """No Node that can run the CLI was found."""


class InstallFailed(ToolchainError):
    """npm or pip did not do what was asked. `output` is the end of what it printed."""

    def __init__(self, message: str, *, hint: str | None = None, output: str = "") -> None:
        super().__init__(message, hint=hint)
        self.output = output


class RunFailed(GeminidsError):
    """A run that did not succeed, raised only where the caller asked for it. `result` has it all."""

    def __init__(self, message: str, *, result: Any, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result = result
