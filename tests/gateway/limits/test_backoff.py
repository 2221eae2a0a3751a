"""Tests of `Backoff`: how long the gateway waits before it sends to a model again after a 429."""

from __future__ import annotations

from geminids.gateway.limits.rate_limiter import Backoff


def test_retry_after_is_respected() -> None:
    """The back-off lasts as long as `retry_after`.
    A later, shorter `retry_after` does not shorten it."""
    backoff = Backoff()
    backoff.refused(10.0, 30.0)
    backoff.refused(11.0, 2.0)
    assert (backoff.wait(10.0), backoff.wait(39.0), backoff.wait(40.0)) == (30.0, 1.0, 0.0)


def test_backoff_without_retry_after_doubles() -> None:
    """Without `retry_after`, each new 429 doubles the back-off, from 1 second up to 60 seconds."""
    backoff, now, waits = Backoff(chance=lambda: 0.0), 0.0, []
    for _ in range(8):
        backoff.refused(now, None)
        waits.append(backoff.wait(now))
        now += backoff.wait(now)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_jitter_lengthens_the_backoff() -> None:
    """Jitter lengthens the back-off by at most a quarter."""
    backoff = Backoff(chance=lambda: 1.0)
    backoff.refused(0.0, None)
    assert backoff.wait(0.0) == 1.25


def test_simultaneous_refusals_count_once() -> None:
    """Fifty refusals at the same time cause the same back-off as a single one."""
    backoff = Backoff(chance=lambda: 0.0)
    for _ in range(50):
        backoff.refused(0.0, None)
    assert backoff.wait(0.0) == 1.0


def test_successful_answer_resets_the_backoff() -> None:
    """An answer after the back-off resets it to 1 second.
    An answer during the back-off does not, because its request may be older than the refusal."""
    backoff = Backoff(chance=lambda: 0.0)
    backoff.refused(0.0, None)
    backoff.refused(1.0, None)
    backoff.answered(1.5)
    assert backoff.wait(1.5) == 1.5
    backoff.refused(3.0, None)
    assert backoff.wait(3.0) == 4.0
    backoff.answered(7.0)
    backoff.refused(8.0, None)
    assert backoff.wait(8.0) == 1.0
