"""Tests of `next_attempt`: whether and how a failed run is retried."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import Options
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.outcome import Failure
from geminids.run.retry import CONTINUE, LONGEST_WAIT, NextAttempt, NoRetry, next_attempt


def failed(kind: Any, *, retryable: bool = True, retry_after: float | None = None) -> Ending:
    failure = Failure(kind=kind, message="m", retryable=retryable, hint="h", retry_after=retry_after)
    return Ending("failed", "m", failure)


def next_or_none(ending: Ending, failures: int = 1, **fields: Any) -> NextAttempt | None:
    decision = decide(ending, failures, **fields)
    return None if isinstance(decision, NoRetry) else decision


def decide(ending: Ending, failures: int = 1, **fields: Any) -> NextAttempt | NoRetry | None:
    known: dict[str, Any] = {"session_id": "s-1", "has_acted": False, "used_models": ("pro",)}
    known |= {name: fields.pop(name) for name in list(fields) if name in known}
    options = Options(**{"model": "pro", "retries": 2, **fields})
    return next_attempt(ending, options, failures=failures, jitter=lambda: 0.0, **known)


def test_a_run_without_effects_starts_again() -> None:
    """A run that called no tool starts again with the same prompt, in a new session or in the
    session that the caller resumed."""
    attempt = next_or_none(failed("server"))
    assert attempt is not None
    assert (attempt.delay, attempt.resume, attempt.prompt, attempt.model) == (1.0, None, None, "pro")
    resumed = next_or_none(failed("server"), resume="s-0")
    assert resumed is not None
    assert resumed.resume == "s-0"


def test_a_run_with_tool_calls_is_continued() -> None:
    """A run whose tools have run continues its session, so that they do not run again."""
    attempt = next_or_none(failed("crashed"), has_acted=True)
    assert attempt is not None
    assert (attempt.resume, attempt.prompt) == ("s-1", CONTINUE)


@pytest.mark.parametrize("kind", ["loop", "blocked", "bad_request"])
def test_a_broken_session_is_not_continued(kind: str) -> None:
    """If the session cannot be continued and tools have run, the failure stands, with a reason."""
    for decision in (
        decide(failed(kind), has_acted=True),
        decide(failed("crashed"), has_acted=True, session_id=None),
    ):
        assert isinstance(decision, NoRetry)


@pytest.mark.parametrize(
    "kind", ["auth", "quota_day", "model_not_found", "config", "bad_prompt", "cli_missing"]
)
def test_a_permanent_failure_is_not_retried(kind: str) -> None:
    """A failure that is not retryable, such as a bad key or a used-up daily quota, is not
    retried."""
    assert next_or_none(failed(kind, retryable=False)) is None


def test_retries_limits_the_attempts() -> None:
    """`retries=2` allows three attempts, `retries=0` one. A success or a timeout is not retried."""
    assert next_or_none(failed("server"), failures=2) is not None
    assert next_or_none(failed("server"), failures=3) is None
    assert next_or_none(failed("server"), retries=0) is None
    assert next_or_none(Ending("success")) is None
    assert next_or_none(Ending("timed_out", "t")) is None


def test_delays_grow_unless_the_api_sets_one() -> None:
    """The delay is 1, 2, 4 … 60 s, or the `retry_after` of the API."""
    delays = [
        attempt.delay
        for n in range(1, 9)
        if (attempt := next_or_none(failed("server"), failures=n, retries=9))
    ]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    attempt = next_or_none(failed("quota_minute", retry_after=12.5))
    assert attempt is not None
    assert attempt.delay == 12.5


def test_a_very_long_wait_is_refused() -> None:
    """If the API asks for a wait over `LONGEST_WAIT`, the failure stands, or a fallback model is
    used at once."""
    ending = failed("server", retry_after=LONGEST_WAIT + 1)
    decision = decide(ending)
    assert isinstance(decision, NoRetry)
    assert "the API asks to wait 301 s" in decision.why
    other = next_or_none(ending, fallback_models=("flash",))
    assert other is not None
    assert (other.model, other.delay) == ("flash", 0.0)
    assert decide(ending, retries=0) is None, "without retries there is no reason to give"
    at_limit = next_or_none(failed("server", retry_after=LONGEST_WAIT))
    assert at_limit is not None
    assert at_limit.delay == LONGEST_WAIT


def test_the_current_model_is_kept() -> None:
    """A retry after a fallback uses the fallback model."""
    known: dict[str, Any] = {"fallback_models": ("flash",), "used_models": ("pro", "flash")}
    attempt = next_or_none(failed("server"), failures=2, **known)
    assert attempt is not None
    assert attempt.model == "flash"


def test_fallback_models() -> None:
    """A fallback model is used at once if the quota is used up, and after the retries if the model
    is busy; each model is used once."""
    known: dict[str, Any] = {"fallback_models": ("flash", "flash-lite")}
    attempt = next_or_none(failed("quota_day", retryable=False), **known)
    assert attempt is not None
    assert (attempt.model, attempt.delay) == ("flash", 0.0)
    attempt = next_or_none(failed("server"), failures=3, used_models=("pro", "flash"), **known)
    assert attempt is not None
    assert attempt.model == "flash-lite"
    assert next_or_none(failed("server"), failures=1, **known).model == "pro"  # type: ignore[union-attr]
    assert (
        next_or_none(
            failed("quota_day", retryable=False), used_models=("pro", "flash", "flash-lite"), **known
        )
        is None
    )
    assert next_or_none(failed("auth", retryable=False), **known) is None
