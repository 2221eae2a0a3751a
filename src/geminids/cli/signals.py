"""Ctrl-C and its kin: a first signal asks the run to end, a second ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from geminids.run.run import Run

__all__ = ["signals_noted", "stop_on_signals"]

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_noted = 0


@contextmanager
def signals_noted() -> Iterator[None]:
    """Note the signals that come before an event loop is there to hear them: the CLI runs by then."""
    global _noted
    _noted = 0
    before = {number: signal.signal(number, _note) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _note(number: int, frame: FrameType | None) -> None:
    global _noted
    _noted += 1


async def stop_on_signals(run: Run, told: Callable[[], None]) -> None:
    """Stop the run at each signal, those that were noted first, and tell of it."""
    import anyio

    with anyio.open_signal_receiver(*_STOPPING) as signals:
        for _ in range(_noted):
            run.stop()
            told()
        async for _ in signals:
            run.stop()
            told()
