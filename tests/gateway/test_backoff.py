"""How long nobody asks a model again."""

from __future__ import annotations

from geminids.gateway.limits.rate_limiter import Backoff


def test_what_the_api_says_holds() -> None:
    """`retry_after` is kept to the second; a shorter one does not undo a longer one."""
    backoff = Backoff()
    backoff.refused(10.0, 30.0)
    backoff.refused(11.0, 2.0)
    assert (backoff.wait(10.0), backoff.wait(39.0), backoff.wait(40.0)) == (30.0, 1.0, 0.0)


def test_without_a_word_it_grows_up_to_a_minute() -> None:
    """1, 2, 4 … 60 seconds, each time that the model is asked again and refuses again."""
    backoff, now, waits = Backoff(chance=lambda: 0.0), 0.0, []
    for _ in range(8):
        backoff.refused(now, None)
        waits.append(backoff.wait(now))
        now += backoff.wait(now)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_jitter_only_makes_it_longer() -> None:
    """By a quarter at most."""
    backoff = Backoff(chance=lambda: 1.0)
    backoff.refused(0.0, None)
    assert backoff.wait(0.0) == 1.25


def test_refusals_of_one_moment_are_one() -> None:
    """Fifty requests that were refused together do not make the time fifty times longer."""
    backoff = Backoff(chance=lambda: 0.0)
    for _ in range(50):
        backoff.refused(0.0, None)
    assert backoff.wait(0.0) == 1.0


def test_an_answer_begins_it_anew() -> None:
    """But not the answer to a request that had left before the refusal."""
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
