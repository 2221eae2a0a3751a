"""So many requests a minute: evenly, and never more in any minute."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from geminids.gateway.limits.rate_limiter import Rate


def _departures(rate: Rate, pauses: list[float]) -> list[float]:
    """When requests leave that each come so long after the one before has left."""
    now, left = 0.0, []
    for pause in pauses:
        now += pause
        now += rate.wait(now)
        rate.record(now)
        left.append(now)
    return left


@given(st.integers(1, 40), st.lists(st.sampled_from([0.0, 0.0, 0.1, 3.0, 59.0, 61.0]), max_size=150))
@example(12, [0.0] * 40)
@example(60, [100.0] + [0.0] * 150)
def test_no_minute_has_more(per_minute: int, pauses: list[float]) -> None:
    """Wherever a minute begins, no more than were allowed leave in it."""
    left = _departures(Rate(per_minute), pauses)
    for first, later in zip(left, left[per_minute:], strict=False):
        assert later - first >= 60.0 - 1e-6


def test_the_rate_is_used_in_full() -> None:
    """Who always has a request sends as many as are allowed: 60 a minute are 600 in ten."""
    left = _departures(Rate(60), [0.0] * 700)
    assert 599 <= sum(at < 600.0 for at in left) <= 610


def test_a_few_may_leave_at_once() -> None:
    """After a quiet time a sixth of a minute's requests leaves without waiting, and then one by one."""
    left = _departures(Rate(60), [100.0] + [0.0] * 12)
    assert left[:10] == [100.0] * 10
    assert [round(at, 6) for at in left[10:]] == [101.0, 102.0, 103.0]


def test_those_before_are_waited_for() -> None:
    """The third in a queue knows when its turn is."""
    rate = Rate(6)
    rate.record(0.0)
    assert [rate.wait(0.0, before) for before in range(3)] == [10.0, 20.0, 30.0]


@given(st.lists(st.integers(1, 40), min_size=2, max_size=60))
@example([60, 59] * 30)
def test_another_rate_forgets_nothing(rates: list[int]) -> None:
    """Runs that name other rates in turn send no more than the highest of them allows."""
    now, left, rate = 0.0, [], Rate(rates[0])
    for per_minute in rates * 3:
        rate = rate.with_limit(per_minute)
        now += rate.wait(now)
        rate.record(now)
        left.append(now)
    for first, later in zip(left, left[max(rates) :], strict=False):
        assert later - first >= 60.0 - 1e-6
