"""A run that is refused before anything is started."""

from __future__ import annotations

from geminids.outcome import Failure, FailureKind

__all__ = ["Refused"]


class Refused(Exception):
    """A run that cannot be started, told before anything is: its failure says why and what to do.

    `headless_can`: only a warm process cannot be started; a headless run can.
    """

    def __init__(self, kind: FailureKind, message: str, hint: str, *, headless_can: bool = False) -> None:
        super().__init__(message)
        self.headless_can = headless_can
        self.failure = Failure(kind=kind, message=message, retryable=False, hint=hint)
