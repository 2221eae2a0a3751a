"""Whether a run that failed is tried again, when, how, and with which model. Pure."""

from __future__ import annotations

from collections.abc import Callable
from random import random

import msgspec

from geminids.options import Options
from geminids.outcome import FailureKind
from geminids.wire.endings import Ending

__all__ = ["GO_ON", "LONGEST_WAIT", "Again", "Stands", "retry_of"]

# Said to a session in which tools have run: the same prompt again could make them run twice.
GO_ON = (
    "You were cut off before you were done. Go on from where you were. What your tools have done is done, also "
    "where you have not seen how it ended: look at it before you do anything again."
)
LONGEST_WAIT = 300.0
"""Seconds. Where the API asks for more, the failure stands: a run that sleeps for hours looks like one that hangs."""
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


class Stands(msgspec.Struct, frozen=True):
    """No further attempt, though another could have been expected; why."""

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
) -> Again | Stands | None:
    """The next attempt after an ending; None where this one stands, as anybody would expect.

    `failures` counts the attempts that have failed, this one included; `has_acted`: a tool has run in this
    conversation, which must not be repeated blindly. `used_models` are those of the attempts so far, the one in
    use last.
    """
    failure = ending.failure
    if failure is None:
        return None
    wait = failure.retry_after or 0.0
    other = next((name for name in options.fallback_models if name not in used_models), None)
    changes = other is not None and (
        failure.kind in _OTHER_MODEL
        or (failure.kind in _BUSY and (failures > options.retries or wait > LONGEST_WAIT))
    )
    if not changes and (not failure.retryable or failures > options.retries):
        return None
    if not changes and wait > LONGEST_WAIT:
        return Stands(f"the API asks to wait for {wait:.0f} s, and {LONGEST_WAIT:.0f} s are the most")
    if has_acted and session_id is None:
        return Stands("a tool may have run, and there is no session to go on with")
    if has_acted and failure.kind in _POISONED:
        return Stands("tools have run, and to go on in this session would fail in the same way")
    model = other if changes else used_models[-1]
    how = f"goes on in session {session_id}" if has_acted else "begins anew"
    named = f" with model {model}" if changes else ""
    return Again(
        delay=0.0 if changes else _delay(failures, failure.retry_after, jitter()),
        resume=session_id if has_acted else options.resume,
        model=model,
        prompt=GO_ON if has_acted else None,
        why=f"{failure.kind}: {failure.message.rstrip('. ')}; the next attempt {how}{named}",
    )


def _delay(failures: int, retry_after: float | None, jitter: float) -> float:
    """What the API asks for; else 1, 2, 4 … 60 seconds, and up to a fifth more so that many do not come at once."""
    wait = min(_FIRST * 2 ** (failures - 1), _MOST) if retry_after is None else retry_after
    return wait * (1 + jitter / 5)
