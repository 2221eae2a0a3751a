"""Ctrl-C and its kin: a first signal asks the run to end, a second ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminids.run.run import Run
    from geminids.run.warm.owner_run import RemoteRun

__all__ = ["signals_noted", "stop_on_signals"]

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_noted: list[int] = []


@contextmanager
def signals_noted() -> Iterator[None]:
    """Note the signals that come before an event loop is there to hear them: the CLI runs by then."""
    _noted.clear()
    before = {number: signal.signal(number, _note) for number in _heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


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
