"""Ctrl-C and other signals: the first asks a run or a turn to stop, the second ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminids.run.run import Run
    from geminids.warm.owner.owner_run import RemoteRun

__all__ = ["HungUp", "Interrupts", "collect_signals", "stop_on_signals"]

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_early: list[int] = []
"""Signals that arrived before the event loop ran."""


@contextmanager
def collect_signals() -> Iterator[None]:
    """Collect signals until the event loop handles them: the CLI is already running by then."""
    _early.clear()
    with _handled(_collect):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _stopping_signals()}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)


def _stopping_signals() -> list[signal.Signals]:
    """The signals that stop us, without those that our parent ignores (`nohup`, a shell's `&`)."""
    return [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]


def _collect(number: int, frame: FrameType | None) -> None:
    _early.append(number)


async def stop_on_signals(run: Run | RemoteRun, on_stop: Callable[[], None]) -> None:
    """Stop the run and call `on_stop` at each signal, beginning with the collected ones."""
    import anyio

    def stop(number: int) -> None:
        run.stop(f"interrupted by {signal.Signals(number).name}")
        on_stop()

    with anyio.open_signal_receiver(*_stopping_signals()) as signals:
        for number in _early:
            stop(number)
        async for number in signals:
            stop(number)


class HungUp(Exception):
    """The terminal was closed, or another process asked us to end."""


class Interrupts:
    """Handles signals within `with interrupts.handled()`. Ignored signals stay ignored."""

    def __init__(self) -> None:
        self.typed = ""
        """The text in the input line when Ctrl-C was pressed at the prompt."""
        self._prompting = False
        self._pending: list[int] = []

    @contextmanager
    def handled(self) -> Iterator[None]:
        with _handled(self._on_signal):
            yield

    @contextmanager
    def prompting(self) -> Iterator[None]:
        """While the user types: Ctrl-C raises KeyboardInterrupt, another signal `HungUp`."""
        number = self.take()
        if number is not None and number != signal.SIGINT:
            raise HungUp
        self._prompting, self.typed = True, ""
        try:
            yield
        finally:
            self._prompting = False

    def take(self) -> int | None:
        """Remove and return the oldest pending signal."""
        return self._pending.pop(0) if self._pending else None

    @property
    def waiting(self) -> bool:
        return bool(self._pending)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._prompting:
            self._pending.append(number)
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
