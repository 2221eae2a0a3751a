"""A CLI that somebody else ends: never a success, and never our own interruption."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from endings import ended
from geminids import Started, Text, stream_sync

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGKILL,
        pytest.param(signal.SIGHUP, marks=pytest.mark.deep),
    ],
)
def test_a_signal_from_outside_cuts_off(world: Any, number: signal.Signals) -> None:
    """The CLI ends with exit 0 and says nothing; what it had said is kept."""
    world.gateway.reply(text="on my way", stall=True, times=None)
    events: list[Any] = []
    for event in stream_sync("hello", world.options()):
        events.append(event)
        if isinstance(event, Text):
            os.kill(events[0].pid, number)
    assert isinstance(events[0], Started)
    finished = ended(events, "failed", "cut_off", retryable=True, http_status=None)
    assert finished.text == "on my way"
    assert finished.exit_code == (-signal.SIGKILL if number == signal.SIGKILL else 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.deep)])
def test_a_signal_before_the_first_word_cuts_off(world: Any, number: signal.Signals) -> None:
    """While node still loads, a signal ends the process itself: the same failure."""
    events: list[Any] = []
    for event in stream_sync("hello", world.options()):
        events.append(event)
        if isinstance(event, Started):
            os.kill(event.pid, number)
    finished = ended(events, "failed", "cut_off", retryable=True)
    assert finished.text == ""
