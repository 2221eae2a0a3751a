"""Whether a run that failed is tried again, when, how, and with which model. Pure."""

from __future__ import annotations

from collections.abc import Callable
from random import random

import msgspec

from geminids.options import Options
from geminids.outcome import FailureKind
from geminids.wire.endings import Ending

__all__ = ["GO_ON", "Again", "retry_of"]

# Said to a session in which tools have run: the same prompt again could make them run twice.
GO_ON = (
    "The connection to the model broke before you were done. Go on from where you were. What your tools have done is "
    "done: look at it before you do anything again."
)
_FIRST, _MOST = 1.0, 60.0
# Waiting does not help, another model may.
_OTHER_MODEL: tuple[FailureKind, ...] = ("quota_day", "model_not_found")
# Waiting may help; where it has not, so may another model.
_BUSY: tuple[FailureKind, ...] = ("quota_minute", "server")
# A session that is at fault itself must not be gone on with.
_POISONED: tuple[FailureKind, ...] = ("bad_request", "loop", "blocked")


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """The next attempt: after so many seconds, in the session or anew, with this model, and why."""

    delay: float
    resume: str | None
    model: str | None
    prompt: str | None
    """What is said; None for the run's own prompt."""
    why: str


def retry_of(
    ending: Ending,
    options: Options,
    *,
    failures: int,
    session_id: str | None,
    has_acted: bool,
    used_models: tuple[str | None, ...],
    jitter: Callable[[], float] = random,
) -> Again | None:
    """The next attempt after an ending; None where this one stands.

    `failures` counts the attempts that have failed, this one included; `has_acted`: a tool has run in this
    conversation, which must not be repeated blindly. `used_models` are those of the attempts so far.
    """
    failure = ending.failure
    if failure is None:
        return None
    other = next((name for name in options.fallback_models if name not in used_models), None)
    changes = other is not None and (
        failure.kind in _OTHER_MODEL or (failure.kind in _BUSY and failures > options.retries)
    )
    if not changes and (not failure.retryable or failures > options.retries):
        return None
    resumes = has_acted and session_id is not None and failure.kind not in _POISONED
    if has_acted and not resumes:
        return None  # neither again nor on: what it did would be done twice, or it would fail the same way
    model = other if changes else options.model
    delay = 0.0 if changes else _delay(failures, failure.retry_after, jitter())
    how = f"goes on in session {session_id}" if resumes else "begins anew"
    named = f" with model {model}" if changes else ""
    return Again(
        delay=delay,
        resume=session_id if resumes else options.resume,
        model=model,
        prompt=GO_ON if resumes else None,
        why=f"{failure.kind}: {failure.message}; attempt {failures + 1} {how}{named}",
    )


def _delay(failures: int, retry_after: float | None, jitter: float) -> float:
    """What the API asks for; else 1, 2, 4 … 60 seconds, and up to a fifth more so that many do not come at once."""
    wait = min(_FIRST * 2 ** (failures - 1), _MOST) if retry_after is None else retry_after
    return wait * (1 + jitter / 5)
