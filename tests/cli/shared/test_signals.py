"""The signals that the command line receives on its event loop."""

from __future__ import annotations

import signal

import anyio

from geminids.cli.shared.signals import collect_signals, receive_signals


def _received(*numbers: signal.Signals) -> list[int]:
    """Return the signals that `receive_signals` reports; the first one is sent before it starts."""
    received: list[int] = []

    async def receive() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive_signals, received.append)
            await anyio.wait_all_tasks_blocked()
            for number in numbers[1:]:
                signal.raise_signal(number)
            with anyio.fail_after(10):
                while not received or received[-1] != numbers[-1]:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    with collect_signals():
        signal.raise_signal(numbers[0])
        anyio.run(receive)
    return received


def test_early_and_late_signals_are_received() -> None:
    """A signal that arrives before the event loop is reported first. Later, the old handlers are
    in place again."""
    before = signal.getsignal(signal.SIGINT)
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    assert _received(*numbers) == list(numbers)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """A signal that was ignored before, as by `nohup`, stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert _received(signal.SIGINT, signal.SIGHUP, signal.SIGTERM) == [signal.SIGINT, signal.SIGTERM]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
