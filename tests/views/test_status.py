"""The status line of a run: what the run does now, and for how long."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from geminids.events.model import Event, Retry
from geminids.views.terminal.status import RunActivity, Status


def _activity_at(now: float, *timed_events: tuple[float, Event]) -> RunActivity | None:
    status = Status(0.0)
    for when, event in timed_events:
        status.update(event, when)
    return status.activity(now)


def test_a_run_is_starting_until_the_first_cli_event(events: Any) -> None:
    """A run is `starting` until the first event of the CLI after `Started`.

    Our own notices before it do not count.
    """
    before = events.notice("info", "workspace")
    assert _activity_at(1.0, (0.5, before)) == RunActivity("starting", 1.0)
    assert _activity_at(3.0, (0.5, before), (1.0, events.started())) == RunActivity("starting", 2.0)
    timed_events = [(1.0, events.started()), (2.0, events.notice("debug", "ripgrep"))]
    assert _activity_at(3.5, *timed_events) == RunActivity("thinking", 1.5)


def test_a_warm_cli_is_not_starting(events: Any) -> None:
    """On the warm transport the status is `thinking` from `Started` on, because the CLI already
    runs.
    """
    warm = msgspec.structs.replace(events.started(), transport="warm")
    assert _activity_at(3.0, (1.0, warm)) == RunActivity("thinking", 2.0)


def test_no_status_while_text_arrives(events: Any) -> None:
    """There is no status while text arrives; after a second without text it is `thinking`."""
    assert _activity_at(5.5, (5.0, events.text("a"))) is None
    assert _activity_at(7.0, (5.0, events.text("a"))) == RunActivity("thinking", 2.0)


def test_the_subject_of_a_thought_is_shown(events: Any) -> None:
    """The status shows the subject of a thought.

    Its time starts at the last event before the thought.
    """
    timed_events = [
        (1.0, events.started()),
        (2.0, events.done()),
        (4.0, events.thought("Looking\x1b around")),
    ]
    assert _activity_at(5.0, *timed_events) == RunActivity("thinking: Looking␛ around", 3.0)


def test_a_running_tool_is_named(events: Any) -> None:
    """The status names the first running tool and counts the others."""
    timed_events = [(1.0, events.tool("npm test", "a")), (2.0, events.tool("Read a.py", "b"))]
    assert _activity_at(13.0, *timed_events) == RunActivity("running npm test (and 1 more)", 12.0)
    assert _activity_at(13.0, *timed_events, (3.0, events.done(id="a"))) == RunActivity(
        "running Read a.py", 11.0
    )
    assert _activity_at(
        13.0, *timed_events, (3.0, events.done(id="a")), (4.0, events.done(id="b"))
    ) == RunActivity("thinking", 9.0)


def test_the_tool_of_a_subagent_is_named(events: Any) -> None:
    """While a subagent runs a tool, the status names that inner tool.

    Calls that name each other as parents do no harm.
    """
    timed_events = [(1.0, events.tool("Agent", "a")), (2.0, events.tool("Read b.py", "b", parent="a"))]
    assert _activity_at(3.0, *timed_events) == RunActivity("running Read b.py", 1.0)
    ring = [(1.0, events.tool("x", "x", parent="y")), (2.0, events.tool("y", "y", parent="x"))]
    assert _activity_at(3.0, *ring) == RunActivity("running x", 2.0)


def test_the_reason_of_a_held_back_request_is_shown(events: Any) -> None:
    """While the gateway holds a request back, the status shows the reason.

    After the wait, or after new text, it is `thinking`.
    """
    reason = "the limit is 20 requests a minute"
    notice = events.notice("info", "waiting", wait_s=3.0, wait_reason=reason)
    status = Status(0.0)
    for at, event in [(1.0, events.started()), (2.0, notice)]:
        status.update(event, at)
    assert status.activity(4.0) == RunActivity(f"waiting: {reason}", 2.0)
    assert status.activity(5.5) == RunActivity("thinking", 3.5)
    status.update(notice, 6.0)
    status.update(events.text("a"), 6.5)
    assert status.activity(8.0) == RunActivity("thinking", 1.5)


def test_the_wait_for_the_next_attempt(events: Any) -> None:
    """The wait for the next attempt is shown until it is over.

    A notice without a wait changes nothing.
    """
    notice = events.notice("warning", "next_attempt", "server: busy, in 2.0 s", wait_s=2.0)
    timed_events = [(1.0, events.started()), (2.0, notice)]
    assert _activity_at(3.0, *timed_events) == RunActivity("waiting for the next attempt", 1.0)
    assert _activity_at(4.5, *timed_events) == RunActivity("thinking", 2.5)
    other = events.notice("info", "next_attempt", "schema_mismatch: no JSON")
    assert _activity_at(3.0, (1.0, events.started()), (2.0, other)) == RunActivity("thinking", 1.0)


@pytest.mark.parametrize(
    ("retry", "words"),
    [
        (Retry(3, 429), "retry 3 after HTTP 429"),
        (Retry(1, None), "retry 1 after no answer"),
        (Retry(None, 503), "retry after HTTP 503"),
    ],
)
def test_a_retry_is_shown_until_another_event(events: Any, retry: Retry, words: str) -> None:
    """A retry is shown until the CLI gives up or an event arrives that is not a notice."""
    timed_events = [(1.0, events.started()), (2.0, events.notice("warning", "retry", retry=retry))]
    assert _activity_at(4.0, *timed_events) == RunActivity(words, 2.0)
    assert _activity_at(4.0, *timed_events, (3.0, events.notice("debug", "stderr"))) == RunActivity(
        words, 2.0
    )
    assert _activity_at(4.0, *timed_events, (3.0, events.done())) == RunActivity("thinking", 1.0)
    assert _activity_at(4.0, *timed_events, (3.0, events.notice("error", "gave_up"))) == RunActivity(
        "thinking", 2.0
    )


def test_stopping_is_shown_until_the_end(events: Any) -> None:
    """After `stop` the status is `stopping` since the first call, whatever arrives.

    A finished run has no status.
    """
    status = Status(0.0)
    status.update(events.tool("npm test"), 1.0)
    status.stop(2.0)
    status.stop(3.0)
    status.update(events.text("still talking"), 3.5)
    assert status.activity(4.0) == RunActivity("stopping", 2.0)
    status.update(events.finished(), 5.0)
    assert status.activity(6.0) is None
