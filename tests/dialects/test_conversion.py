"""Recorded runs in another format."""

from __future__ import annotations

import functools

import pytest

from geminids.dialects.convert import EventsEncoder, converted
from geminids.dialects.dialect import DIALECTS, dialect, encode_run
from geminids.events.model import encode_event
from random_events import recorded


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_runs_one_behind_the_other(name: str) -> None:
    """Each run is told by itself, wherever the batches are cut."""
    runs = [recorded("plain"), recorded("tools")]
    expected = b"".join(b"".join(encode_run(name, events)) for events in runs)
    together = [*runs[0], *runs[1]]
    for size in (1, 4, len(runs[0]), 99):
        batches = [together[at : at + size] for at in range(0, len(together), size)]
        assert b"".join(converted(functools.partial(dialect, name), batches)) == expected


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_a_run_without_its_end(name: str) -> None:
    """It is ended as the dialect ends it when no `Finished` comes; so is no run at all."""
    cut = recorded("tools")[:-1]
    assert b"".join(converted(functools.partial(dialect, name), [cut])) == b"".join(encode_run(name, cut))
    assert b"".join(converted(functools.partial(dialect, name), [])) == b"".join(encode_run(name, []))


def test_our_own_tongue() -> None:
    """Events stay as they are."""
    events = recorded("tools")
    assert b"".join(converted(EventsEncoder, [events])) == b"".join(
        encode_event(event) + b"\n" for event in events
    )
