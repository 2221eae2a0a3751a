"""When a failed run is tried again, and how."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import Options
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.outcome import Failure
from geminids.run.retry import CONTINUE, LONGEST_WAIT, NextAttempt, Stands, next_attempt


def failed(kind: Any, *, retryable: bool = True, retry_after: float | None = None) -> Ending:
    failure = Failure(kind=kind, message="m", retryable=retryable, hint="h", retry_after=retry_after)
    return Ending("failed", "m", failure)


def again(ending: Ending, failures: int = 1, **fields: Any) -> NextAttempt | None:
    found = verdict(ending, failures, **fields)
    return None if isinstance(found, Stands) else found


def verdict(ending: Ending, failures: int = 1, **fields: Any) -> NextAttempt | Stands | None:
    known: dict[str, Any] = {"session_id": "s-1", "has_acted": False, "used_models": ("pro",)}
    known |= {name: fields.pop(name) for name in list(fields) if name in known}
    options = Options(**{"model": "pro", "retries": 2, **fields})
    return next_attempt(ending, options, failures=failures, jitter=lambda: 0.0, **known)


def test_a_run_that_did_nothing_begins_anew() -> None:
    """With the same prompt, in a session of its own (or the one that was to be resumed)."""
    found = again(failed("server"))
    assert found is not None
    assert (found.delay, found.resume, found.prompt, found.model) == (1.0, None, None, "pro")
    resumed = again(failed("server"), resume="s-0")
    assert resumed is not None
    assert resumed.resume == "s-0"


def test_a_run_that_acted_goes_on() -> None:
    """Tools that have run are not run again blindly."""
    found = again(failed("crashed"), has_acted=True)
    assert found is not None
    assert (found.resume, found.prompt) == ("s-1", CONTINUE)


@pytest.mark.parametrize("kind", ["loop", "blocked", "bad_request"])
def test_a_session_at_fault_is_not_gone_on_with(kind: str) -> None:
    """Nor is what it did done twice: then the failure stands."""
    for found in (
        verdict(failed(kind), has_acted=True),
        verdict(failed("crashed"), has_acted=True, session_id=None),
    ):
        assert isinstance(found, Stands), "and that is said"


@pytest.mark.parametrize(
    "kind", ["auth", "quota_day", "model_not_found", "config", "bad_prompt", "cli_missing"]
)
def test_what_waiting_does_not_help(kind: str) -> None:
    """A bad key stays bad, and a day's quota is gone for the day."""
    assert again(failed(kind, retryable=False)) is None


def test_as_often_as_was_said() -> None:
    """`retries=2` is three attempts; 0 is one."""
    assert again(failed("server"), failures=2) is not None
    assert again(failed("server"), failures=3) is None
    assert again(failed("server"), retries=0) is None
    assert again(Ending("success")) is None
    assert again(Ending("timed_out", "t")) is None


def test_delays_grow_and_the_api_has_the_word() -> None:
    """1, 2, 4 … 60 s; with `retry_after`, that."""
    delays = [found.delay for n in range(1, 9) if (found := again(failed("server"), failures=n, retries=9))]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    found = again(failed("quota_minute", retry_after=12.5))
    assert found is not None
    assert found.delay == 12.5


def test_nobody_waits_for_hours() -> None:
    """More than five minutes are not waited for: the failure stands, or another model is taken at once."""
    ending = failed("server", retry_after=LONGEST_WAIT + 1)
    found = verdict(ending)
    assert isinstance(found, Stands)
    assert "the API asks to wait 301 s" in found.why
    other = again(ending, fallback_models=("flash",))
    assert other is not None
    assert (other.model, other.delay) == ("flash", 0.0)
    assert verdict(ending, retries=0) is None, "nobody has expected another attempt"
    just = again(failed("server", retry_after=LONGEST_WAIT))
    assert just is not None
    assert just.delay == LONGEST_WAIT


def test_the_model_in_use_stays() -> None:
    """A retry after a fall-back is one of the fall-back."""
    known: dict[str, Any] = {"fallback_models": ("flash",), "used_models": ("pro", "flash")}
    found = again(failed("server"), failures=2, **known)
    assert found is not None
    assert found.model == "flash"


def test_other_models() -> None:
    """At once where the model's quota is gone; after the retries where it is busy; each once."""
    known: dict[str, Any] = {"fallback_models": ("flash", "flash-lite")}
    found = again(failed("quota_day", retryable=False), **known)
    assert found is not None
    assert (found.model, found.delay) == ("flash", 0.0)
    found = again(failed("server"), failures=3, used_models=("pro", "flash"), **known)
    assert found is not None
    assert found.model == "flash-lite"
    assert again(failed("server"), failures=1, **known).model == "pro"  # type: ignore[union-attr]
    assert (
        again(failed("quota_day", retryable=False), used_models=("pro", "flash", "flash-lite"), **known)
        is None
    )
    assert again(failed("auth", retryable=False), **known) is None
