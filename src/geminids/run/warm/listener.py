"""Who hears what a session of a warm process says."""

from __future__ import annotations

from typing import Protocol

from geminids.wire.acp import Note, Unknown, Update
from geminids.wire.stderr import Remark

__all__ = ["Listener"]


class Listener(Protocol):
    """A turn that hears what its session says, and what the process says besides."""

    def heard(self, update: Update | Unknown) -> None: ...
    def asked(self, ask: Note) -> None: ...
    def remarked(self, remarks: list[Remark], text: str) -> None: ...
