"""With `telemetry`, every request of the CLI is counted, its own errands included."""

from __future__ import annotations

from typing import Any

import pytest

from endings import ended
from geminids import TokensUsed
from geminids.gateway import Usage


@pytest.mark.real
def test_each_request_is_told_with_its_tokens(world: Any) -> None:
    """The journal tells its own while the run goes on; the router's, which it has not, is told at the end."""
    world.gateway.reply(
        calls=[("list_directory", {"dir_path": "."})],
        usage=Usage(input=100, output=5, cached=10, thinking=7),
    )
    world.gateway.reply(text="done", usage=Usage(input=200, output=6, cached=0, thinking=3))
    events = world.events(telemetry=True, model="auto")
    finished = ended(events, "success")
    told = [event for event in events if isinstance(event, TokensUsed)]
    assert [(one.role, one.input, one.cached, one.output, one.thinking) for one in told[:-1]] == [
        ("main", 100, 10, 5, 7),
        ("main", 200, 0, 6, 3),
    ]
    assert told[-1].role == "utility"
    assert finished.usage.requests == 3 == len(world.gateway.requests)
    assert finished.usage.thinking == 10
    assert finished.usage.tool == 0
    assert not list(world.places.runs.glob("*")), "the file is gone with the run"


@pytest.mark.real
def test_without_it_nothing_is_written_down(world: Any) -> None:
    """It costs time, and the file would hold what was said."""
    world.gateway.reply(text="done")
    ended(world.events(), "success")
    assert not world.places.runs.exists() or not list(world.places.runs.glob("*"))
