"""Ctrl-C and its kin in a chat: at the prompt they raise, during a turn they wait to be asked for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["HungUp", "Interrupts"]

_HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class HungUp(Exception):
    """The terminal, or whoever started us, wants us gone."""


class Interrupts:
    """Heeds signals within `with interrupts.heeded()`; those that we were told to ignore stay ignored."""

    def __init__(self) -> None:
        self.typed = ""
        """What stood in the line when Ctrl-C came to the prompt."""
        self._prompting = False
        self._came: list[int] = []

    @contextmanager
    def heeded(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self._on_signal)
            for number in _HEEDED
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)

    @contextmanager
    def prompting(self) -> Iterator[None]:
        """While somebody types: Ctrl-C raises KeyboardInterrupt, another signal `HungUp`."""
        came = self.take()
        if came is not None and came != signal.SIGINT:
            raise HungUp
        self._prompting, self.typed = True, ""
        try:
            yield
        finally:
            self._prompting = False

    def take(self) -> int | None:
        """The signal that has come since this was asked last."""
        return self._came.pop(0) if self._came else None

    @property
    def waiting(self) -> bool:
        return bool(self._came)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._prompting:
            self._came.append(number)
            return
        self._prompting = False
        if number != signal.SIGINT:
            raise HungUp
        self.typed = _line_so_far()
        raise KeyboardInterrupt


def _line_so_far() -> str:
    try:
        import readline
    except ImportError:
        return ""
    return readline.get_line_buffer()
