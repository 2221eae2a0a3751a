"""A CLI process that another program ends is a failure of the run, neither a success nor an
interruption."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from ending_checks import check_ending
from geminids import Started, Text, stream_sync

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    "sent_signal",
    [
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGKILL,
        pytest.param(signal.SIGHUP, marks=pytest.mark.deep),
    ],
)
def test_a_signal_from_outside_cuts_off(world: Any, sent_signal: signal.Signals) -> None:
    """A run whose CLI receives a signal from outside fails as `cut_off` and keeps its text. The CLI
    exits with 0 for every signal but SIGKILL."""
    world.gateway.reply(text="on my way", stall=True, times=None)
    events: list[Any] = []
    for event in stream_sync("hello", world.options()):
        events.append(event)
        if isinstance(event, Text):
            os.kill(events[0].pid, sent_signal)
    assert isinstance(events[0], Started)
    finished = check_ending(events, "failed", "cut_off", retryable=True, http_status=None)
    assert finished.text == "on my way"
    assert finished.exit_code == (-signal.SIGKILL if sent_signal == signal.SIGKILL else 0)


@pytest.mark.parametrize(
    "sent_signal", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.deep)]
)
def test_a_signal_before_the_first_output_cuts_off(world: Any, sent_signal: signal.Signals) -> None:
    """A signal from outside before the CLI's first output fails the run as `cut_off`, without
    text."""
    events: list[Any] = []
    for event in stream_sync("hello", world.options()):
        events.append(event)
        if isinstance(event, Started):
            os.kill(event.pid, sent_signal)
    finished = check_ending(events, "failed", "cut_off", retryable=True)
    assert finished.text == ""
