"""What is going on now."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from geminids.events.model import Event, Retry
from geminids.views.terminal.status import RunActivity, Status


def _at(now: float, *seen: tuple[float, Event]) -> RunActivity | None:
    status = Status(0.0)
    for when, event in seen:
        status.update(event, when)
    return status.activity(now)


def test_a_run_is_starting_until_the_cli_speaks(events: Any) -> None:
    """The spawn alone is no sign of life, and our own notices before it are none either."""
    before = events.notice("info", "workspace")
    assert _at(1.0, (0.5, before)) == RunActivity("starting", 1.0)
    assert _at(3.0, (0.5, before), (1.0, events.started())) == RunActivity("starting", 2.0)
    seen = [(1.0, events.started()), (2.0, events.notice("debug", "ripgrep"))]
    assert _at(3.5, *seen) == RunActivity("thinking", 1.5)


def test_a_warm_cli_has_started_already(events: Any) -> None:
    """It has the prompt when it is told of: from then on it is the model that is waited for."""
    warm = msgspec.structs.replace(events.started(), lane="warm")
    assert _at(3.0, (1.0, warm)) == RunActivity("thinking", 2.0)


def test_text_that_flows_speaks_for_itself(events: Any) -> None:
    """While text comes there is nothing to say; after a second of silence there is."""
    assert _at(5.5, (5.0, events.text("a"))) is None
    assert _at(7.0, (5.0, events.text("a"))) == RunActivity("thinking", 2.0)


def test_a_thought_names_what_the_model_thinks_of(events: Any) -> None:
    """The subject is shown; the time is that since the model's last word."""
    seen = [(1.0, events.started()), (2.0, events.done()), (4.0, events.thought("Looking\x1b around"))]
    assert _at(5.0, *seen) == RunActivity("thinking: Looking␛ around", 3.0)


def test_a_running_tool_is_named(events: Any) -> None:
    """The first that was called is the one that is waited for; the others are counted."""
    seen = [(1.0, events.tool("npm test", "a")), (2.0, events.tool("Read a.py", "b"))]
    assert _at(13.0, *seen) == RunActivity("running npm test (and 1 more)", 12.0)
    assert _at(13.0, *seen, (3.0, events.done(id="a"))) == RunActivity("running Read a.py", 11.0)
    assert _at(13.0, *seen, (3.0, events.done(id="a")), (4.0, events.done(id="b"))) == RunActivity(
        "thinking", 9.0
    )


def test_a_subagent_is_shown_by_what_it_does(events: Any) -> None:
    """Of a call and the calls within it, the inner one is what goes on; a ring of them is no trap."""
    seen = [(1.0, events.tool("Agent", "a")), (2.0, events.tool("Read b.py", "b", parent="a"))]
    assert _at(3.0, *seen) == RunActivity("running Read b.py", 1.0)
    ring = [(1.0, events.tool("x", "x", parent="y")), (2.0, events.tool("y", "y", parent="x"))]
    assert _at(3.0, *ring) == RunActivity("running x", 2.0)


def test_a_request_that_is_held_back_is_told_as_long_as_it_is(events: Any) -> None:
    """Why it waits, and not that the model thinks; after that time it does, and so it does when a word comes."""
    text = "request 4 waits 3.0 s: the limit is 20 requests a minute"
    notice = events.notice("info", "waiting", text, wait_s=3.0)
    status = Status(0.0)
    for at, event in [(1.0, events.started()), (2.0, notice)]:
        status.update(event, at)
    assert status.activity(4.0) == RunActivity("waiting: the limit is 20 requests a minute", 2.0)
    assert status.activity(5.5) == RunActivity("thinking", 3.5)
    status.update(notice, 6.0)
    status.update(events.text("a"), 6.5)
    assert status.activity(8.0) == RunActivity("thinking", 1.5)


def test_the_wait_for_the_next_attempt(events: Any) -> None:
    """It is shown as long as it lasts; a notice without a wait changes nothing."""
    notice = events.notice("warning", "next_attempt", "server: busy, in 2.0 s", wait_s=2.0)
    seen = [(1.0, events.started()), (2.0, notice)]
    assert _at(3.0, *seen) == RunActivity("waiting for the next attempt", 1.0)
    assert _at(4.5, *seen) == RunActivity("thinking", 2.5)
    other = events.notice("info", "next_attempt", "schema_mismatch: no JSON")
    assert _at(3.0, (1.0, events.started()), (2.0, other)) == RunActivity("thinking", 1.0)


@pytest.mark.parametrize(
    ("retry", "words"),
    [
        (Retry(3, 429), "retry 3 after HTTP 429"),
        (Retry(1, None), "retry 1 after no answer"),
        (Retry(None, 503), "retry after HTTP 503"),
    ],
)
def test_a_retry_is_told_until_something_comes(events: Any, retry: Retry, words: str) -> None:
    """It stands above all else that goes on, and ends with the first event that is no notice, or with giving up."""
    seen = [(1.0, events.started()), (2.0, events.notice("warning", "retry", retry=retry))]
    assert _at(4.0, *seen) == RunActivity(words, 2.0)
    assert _at(4.0, *seen, (3.0, events.notice("debug", "stderr"))) == RunActivity(words, 2.0)
    assert _at(4.0, *seen, (3.0, events.done())) == RunActivity("thinking", 1.0)
    assert _at(4.0, *seen, (3.0, events.notice("error", "gave_up"))) == RunActivity("thinking", 2.0)


def test_stopping_outlasts_everything_but_the_end(events: Any) -> None:
    """Once it was asked to end, a run is stopping since then, whatever still comes; a finished one does nothing."""
    status = Status(0.0)
    status.update(events.tool("npm test"), 1.0)
    status.stop(2.0)
    status.stop(3.0)
    status.update(events.text("still talking"), 3.5)
    assert status.activity(4.0) == RunActivity("stopping", 2.0)
    status.update(events.finished(), 5.0)
    assert status.activity(6.0) is None
