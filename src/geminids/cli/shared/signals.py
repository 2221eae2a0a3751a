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

__all__ = ["collect_signals", "receive_signals", "stop_on_signals"]

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

    def stop(number: int) -> None:
        run.stop(f"interrupted by {signal.Signals(number).name}")
        on_stop()

    await receive_signals(stop)


async def receive_signals(handle: Callable[[int], None]) -> None:
    """Call `handle` with the number of each signal, first of those that `collect_signals` has
    stored."""
    import anyio

    with anyio.open_signal_receiver(*_stopping_signals()) as signals:
        for number in _early:
            handle(number)
        async for number in signals:
            handle(number)
