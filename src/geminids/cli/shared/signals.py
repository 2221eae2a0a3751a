"""Ctrl-C and other signals: the first asks a run or a turn to end, the second ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminids.run.run import Run
    from geminids.warm.owner.owner_run import RemoteRun

__all__ = ["HungUp", "Interrupts", "signals_noted", "stop_on_signals"]

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_noted: list[int] = []


@contextmanager
def signals_noted() -> Iterator[None]:
    """Note the signals that come before an event loop is there to hear them: the CLI runs by then."""
    _noted.clear()
    with _handled(_note):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _heeded()}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)


def _heeded() -> list[signal.Signals]:
    """Those that nobody above us has told us to ignore: `nohup` means it, and so does a shell's `&`."""
    return [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(number)


async def stop_on_signals(run: Run | RemoteRun, told: Callable[[], None]) -> None:
    """Stop the run at each signal, those that were noted first, and tell of it."""
    import anyio

    def stop(number: int) -> None:
        run.stop(f"interrupted by {signal.Signals(number).name}")
        told()

    with anyio.open_signal_receiver(*_heeded()) as signals:
        for noted in _noted:
            stop(noted)
        async for number in signals:
            stop(number)


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
        with _handled(self._on_signal):
            yield

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
