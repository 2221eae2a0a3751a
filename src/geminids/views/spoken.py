"""A run in another system's format, on stdout: line by line as it goes on, or whole at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from geminids.events.model import Event

if TYPE_CHECKING:
    from geminids.dialects.tongue import Tongue

__all__ = ["Spoken"]


class Spoken:
    """What a dialect says is written at once; `last` is what it said at the end."""

    def __init__(self, speaker: Tongue) -> None:
        self._speaker = speaker
        self.last = b""

    def show(self, *events: Event) -> None:
        self._write(self._speaker.hear(events))

    def close(self) -> None:
        self.last = self._speaker.end()
        self._write(self.last)

    def _write(self, said: bytes) -> None:
        if said and sys.stdout:
            sys.stdout.buffer.write(said)
            sys.stdout.buffer.flush()
