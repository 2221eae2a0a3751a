"""A run that is refused before anything is started."""

from __future__ import annotations

from geminids.outcome import Failure, FailureKind

__all__ = ["Refused"]


class Refused(Exception):
    """A run that cannot be started, told before anything is: its failure says why and what to do."""

    def __init__(self, kind: FailureKind, message: str, hint: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=message, retryable=False, hint=hint)
