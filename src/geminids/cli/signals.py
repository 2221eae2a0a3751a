"""Ctrl-C and its kin: a first signal asks the run to end, a second ends it at once."""

from __future__ import annotations

import signal

from geminids.run.run import Run

__all__ = ["stop_on_signals"]


async def stop_on_signals(run: Run) -> None:
    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            run.stop()
