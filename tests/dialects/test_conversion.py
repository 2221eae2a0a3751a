"""Conversion of recorded runs to other formats."""

from __future__ import annotations

import functools

import pytest

from geminids.dialects.convert import EventsEncoder, converted
from geminids.dialects.dialect import DIALECTS, dialect, encode_run
from geminids.events.model import encode_event
from random_events import recorded


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_consecutive_runs(name: str) -> None:
    """Consecutive runs are encoded separately, however their events are split into batches."""
    runs = [recorded("plain"), recorded("tools")]
    expected = b"".join(b"".join(encode_run(name, events)) for events in runs)
    all_events = [*runs[0], *runs[1]]
    for size in (1, 4, len(runs[0]), 99):
        batches = [all_events[start : start + size] for start in range(0, len(all_events), size)]
        assert b"".join(converted(functools.partial(dialect, name), batches)) == expected


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_a_run_without_its_end(name: str) -> None:
    """A dialect writes an end for a run without `Finished`, also for a run without events."""
    cut = recorded("tools")[:-1]
    assert b"".join(converted(functools.partial(dialect, name), [cut])) == b"".join(encode_run(name, cut))
    assert b"".join(converted(functools.partial(dialect, name), [])) == b"".join(encode_run(name, []))


def test_our_own_dialect() -> None:
    """The dialect `events` leaves events unchanged."""
    events = recorded("tools")
    assert b"".join(converted(EventsEncoder, [events])) == b"".join(
        encode_event(event) + b"\n" for event in events
    )
