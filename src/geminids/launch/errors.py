"""Errors before a run starts.

    Refused            the run cannot start; carries the failure for its result
    PromptProblem      the prompt, or a file that an option adds to it, cannot be sent
    WorkspaceProblem   something in the folder makes a run impossible or unsafe

`prepare` turns the other two into `Refused`.
"""

from __future__ import annotations

from typing import Literal

from geminids.outcome import Failure, FailureKind

__all__ = ["PromptProblem", "Refused", "WorkspaceProblem"]


class Refused(Exception):
    """The run cannot start; no process was spawned. `failure` has the reason and what to do.

    `headless_can`: a headless run can start, only a warm process cannot.
    """

    def __init__(self, kind: FailureKind, message: str, hint: str, *, headless_can: bool = False) -> None:
        super().__init__(message)
        self.headless_can = headless_can
        self.failure = Failure(kind=kind, message=message, retryable=False, hint=hint)


class PromptProblem(Exception):
    """The prompt, or a file that an option adds to it, cannot be sent. `hint` says what to do."""

    def __init__(
        self, message: str, hint: str, kind: Literal["bad_prompt", "bad_option"] = "bad_prompt"
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.kind = kind


class WorkspaceProblem(Exception):
    """Something in the folder makes a run impossible or unsafe. `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
