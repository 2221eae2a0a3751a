"""A plain run of the real CLI."""

from __future__ import annotations

import pytest

from geminids import Finished, Started, Text

pytestmark = pytest.mark.real


def test_an_answer_arrives_as_events(world) -> None:  # type: ignore[no-untyped-def]
    """A run emits one `Started`, the text in pieces and one `Finished` as its last event. The
    events are numbered without gaps."""
    world.gateway.reply(text=["Hel", "lo"])
    events = world.events("hi")
    assert [event.seq for event in events] == list(range(len(events)))
    assert [type(event) for event in events if isinstance(event, (Started, Finished))] == [Started, Finished]
    assert "".join(event.text for event in events if isinstance(event, Text)) == "Hello"
    assert events[-1].outcome == "success"
