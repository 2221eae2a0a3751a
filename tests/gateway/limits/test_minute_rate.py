"""Tests of `Rate`: requests are spread evenly, and no minute has more than the limit."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from geminids.gateway.limits.rate_limiter import Rate


def _departures(rate: Rate, pauses: list[float]) -> list[float]:
    """Return when each request is sent if it arrives `pause` seconds after
    the one before was sent."""
    now, sent_at = 0.0, []
    for pause in pauses:
        now += pause
        now += rate.wait(now)
        rate.record(now)
        sent_at.append(now)
    return sent_at


@given(st.integers(1, 40), st.lists(st.sampled_from([0.0, 0.0, 0.1, 3.0, 59.0, 61.0]), max_size=150))
@example(12, [0.0] * 40)
@example(60, [100.0] + [0.0] * 150)
def test_no_minute_exceeds_the_limit(per_minute: int, pauses: list[float]) -> None:
    """No period of 60 seconds contains more requests than the limit."""
    sent_at = _departures(Rate(per_minute), pauses)
    for first, later in zip(sent_at, sent_at[per_minute:], strict=False):
        assert later - first >= 60.0 - 1e-6


def test_full_rate_is_used() -> None:
    """With requests always waiting, a limit of 60 a minute sends about 600 in ten minutes."""
    sent_at = _departures(Rate(60), [0.0] * 700)
    assert 599 <= sum(at < 600.0 for at in sent_at) <= 610


def test_burst_after_a_pause() -> None:
    """After a pause, a sixth of a minute's requests is sent at once, and then one at a time."""
    sent_at = _departures(Rate(60), [100.0] + [0.0] * 12)
    assert sent_at[:10] == [100.0] * 10
    assert [round(at, 6) for at in sent_at[10:]] == [101.0, 102.0, 103.0]


def test_wait_counts_requests_before() -> None:
    """The wait includes the time for the requests before it in the queue."""
    rate = Rate(6)
    rate.record(0.0)
    assert [rate.wait(0.0, before) for before in range(3)] == [10.0, 20.0, 30.0]


@given(st.lists(st.integers(1, 40), min_size=2, max_size=60))
@example([60, 59] * 30)
def test_changed_limit_counts_earlier_requests(rates: list[int]) -> None:
    """If the limit changes often, no minute exceeds the highest of the limits."""
    now, sent_at, rate = 0.0, [], Rate(rates[0])
    for per_minute in rates * 3:
        rate = rate.with_limit(per_minute)
        now += rate.wait(now)
        rate.record(now)
        sent_at.append(now)
    for first, later in zip(sent_at, sent_at[max(rates) :], strict=False):
        assert later - first >= 60.0 - 1e-6
