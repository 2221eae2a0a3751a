"""Handle Ctrl-C and other signals: the first one stops a run, the second one ends it
immediately."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminids.run.run import Run
    from geminids.warm.owner.run import RemoteRun

__all__ = ["HungUp", "Interrupts", "collect_signals", "stop_on_signals"]

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_early: list[int] = []
"""The signals that arrived before the event loop was started."""


@contextmanager
def collect_signals() -> Iterator[None]:
    """Inside this `with` block, store the signals that arrive, so that `stop_on_signals` can handle
    them later.

    This is needed because geminids starts Gemini CLI first and its own event loop later. A signal
    can arrive between these two starts.
    """
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
    """Return the signals to handle. Signals that this process ignores (for example, under `nohup`)
    are not returned, so they stay ignored."""
    return [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]


def _collect(number: int, frame: FrameType | None) -> None:
    _early.append(number)


async def stop_on_signals(run: Run | RemoteRun, on_stop: Callable[[], None]) -> None:
    """Wait for signals. At each signal, stop the run and call `on_stop`.

    Signals that `collect_signals` has stored are handled first.
    """
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
    """Raised if the terminal was closed, or if another process asked this process to end
    (SIGTERM)."""


class Interrupts:
    """Handles the signals of a chat inside `with interrupts.handled()`.

    While the user types a prompt, a signal raises an exception. At other times, a signal is stored
    until `take` returns it.
    """

    def __init__(self) -> None:
        self.typed = ""
        """The text that was in the input line when the user pressed Ctrl-C."""
        self._prompting = False
        self._pending: list[int] = []

    @contextmanager
    def handled(self) -> Iterator[None]:
        with _handled(self._on_signal):
            yield

    @contextmanager
    def prompting(self) -> Iterator[None]:
        """Inside this `with` block, the user types a prompt: Ctrl-C raises KeyboardInterrupt, and
        any other signal raises `HungUp`.

        At the start of the block, the oldest stored signal is removed. If this signal comes from
        Ctrl-C, it has no effect; otherwise `HungUp` is raised at once.
        """
        number = self.take()
        if number is not None and number != signal.SIGINT:
            raise HungUp
        self._prompting, self.typed = True, ""
        try:
            yield
        finally:
            self._prompting = False

    def take(self) -> int | None:
        """Remove the oldest stored signal and return its number; None if no signal is stored."""
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
