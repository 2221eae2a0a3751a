"""Errors that prevent a run from starting.

    Refused            the run cannot start; contains the failure for the run's result
    PromptProblem      the prompt, or a file that an option adds to it, cannot be sent
    WorkspaceProblem   something in the working folder makes a run impossible or unsafe

`prepare` catches `PromptProblem` and `WorkspaceProblem` and raises `Refused` in their place.
"""

from __future__ import annotations

from typing import Literal

from geminids.outcome import Failure, FailureKind

__all__ = ["PromptProblem", "Refused", "WorkspaceProblem"]


class Refused(Exception):
    """The run cannot start. No process was started.

    `failure` contains the reason and a hint. `headless_can` is True if the reason applies only to
    warm processes. In that case, a headless run with the same options can start.
    """

    def __init__(self, kind: FailureKind, message: str, hint: str, *, headless_can: bool = False) -> None:
        super().__init__(message)
        self.headless_can = headless_can
        self.failure = Failure(kind=kind, message=message, retryable=False, hint=hint)


class PromptProblem(Exception):
    """The prompt, or a file that an option adds to it, cannot be sent.

    `hint` says what the user can do. `kind` says whether the prompt or an option is wrong.
    """

    def __init__(
        self, message: str, hint: str, kind: Literal["bad_prompt", "bad_option"] = "bad_prompt"
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.kind = kind


class WorkspaceProblem(Exception):
    """Something in the working folder makes a run impossible or unsafe.

    `hint` says what the user can do.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
