"""Decide what follows an attempt: its ending stands, it is retried, or a valid answer is asked for."""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Any, TypeGuard

import msgspec

from geminids.events.model import Usage
from geminids.options import Options
from geminids.outcome import Failure, FailureKind
from geminids.run.cost import sum_of
from geminids.run.wanted import Wanted
from geminids.wire.endings import Ending
from geminids.wire.hints import hint_for

__all__ = ["GO_ON", "LONGEST_WAIT", "After", "Again", "Attempts", "Stands", "retry_of"]

_ASK_AGAIN = (
    "Your answer is not valid by the JSON Schema that was asked for:\n\n{problems}\n\n"
    "Answer again, with the whole JSON value in one ```json block and nothing after it."
)


class After(msgspec.Struct, frozen=True):
    """What an attempt has led to: how the run ends if it ends here, the next attempt, or why there is none."""

    ending: Ending
    again: Again | None = None
    why_not: str | None = None


class Attempts:
    """What has been tried so far. `value` is the answer in the form that was asked for, once it is valid."""

    def __init__(self, prompt: str, options: Options, wanted: Wanted | None) -> None:
        self.options = options
        """With the session to resume as it was found."""
        self._wanted = wanted
        self._failures = 0
        self._asked = 0
        self._models: list[str | None] = [options.model]
        self._usages: list[Usage | None] = []
        # A command may run a shell before the model is asked, and what stands behind it are its arguments.
        is_command = _is_command(prompt, options)
        self._acted = is_command
        says = _is_text(prompt) and bool(prompt.strip() or options.template)
        self._says_form = wanted is not None and says and not is_command
        self.prompt = f"{prompt}\n\n{wanted.instruction()}" if wanted and self._says_form else prompt
        """What the first attempt says: with what is asked of the answer."""
        self.value: Any = None
        self.plain: Any = None
        """The same as JSON has it."""

    @property
    def may_be_several(self) -> bool:
        return bool(self.options.retries or self.options.fallback_models or self._wanted is not None)

    @property
    def has_form(self) -> bool:
        """Whether the answer must be of a form."""
        return self._wanted is not None

    def over(
        self,
        ending: Ending,
        *,
        answer: str,
        session_id: str | None,
        tool_calls: int,
        given_up: Callable[[], str | None] = lambda: None,
    ) -> After:
        """One attempt is over. It may take a while: an answer can be long, and a schema slow; `given_up` says why
        nobody waits for that any more."""
        self._acted = self._acted or tool_calls > 0
        if ending.outcome == "success" and self._wanted is not None:
            return self._valid(self._wanted, ending, answer, session_id, given_up)
        if ending.outcome != "failed":
            return After(ending)
        self._failures += 1
        again = retry_of(
            ending,
            self.options,
            failures=self._failures,
            session_id=session_id,
            has_acted=self._acted,
            used_models=tuple(self._models),
        )
        if isinstance(again, Stands):
            return After(ending, why_not=again.why)
        return After(ending, again)

    def begun(self, again: Again, usage: Usage | None) -> None:
        """The next attempt goes on now; `usage` is that of the one before."""
        self._usages.append(usage)
        if again.model != self._models[-1]:
            self._models.append(again.model)

    def usage(self, last: Usage | None) -> Usage | None:
        """The tokens of all attempts."""
        return sum_of([*self._usages, last]) if self._usages else last

    def _valid(
        self,
        wanted: Wanted,
        ending: Ending,
        answer: str,
        session_id: str | None,
        given_up: Callable[[], str | None],
    ) -> After:
        from geminids.run.extract_aside import checked_in_time  # imported late: jsonschema

        found = checked_in_time(answer, wanted.schema, given_up=given_up)
        if found is None:
            return After(Ending("interrupted", given_up()))
        problems = found.problems
        if found.found:
            try:
                self.value, self.plain = wanted.value_of(found.value), found.value
                return After(ending)
            except ValueError as error:
                problems = (str(error)[:1000],)
        told = "; ".join(problems[:3])
        failure = Failure(
            kind="schema_mismatch",
            message=f"the answer is not valid by the schema: {told}",
            retryable=False,
            hint=hint_for("schema_mismatch"),
        )
        failed = Ending("failed", failure.message, failure)
        if session_id is None or (self._says_form and self._asked >= self.options.schema_tries):
            return After(failed)
        lines = "\n".join(f"- {problem}" for problem in problems)
        again = Again(
            delay=0.0,
            resume=session_id,
            model=self._models[-1],
            prompt=_ASK_AGAIN.format(problems=lines) if self._says_form else wanted.instruction(),
            why=f"schema_mismatch: {told}; asked again in session {session_id}",
            is_correction=True,
        )
        self._asked += self._says_form
        self._acted = self._says_form = True
        return After(failed, again)


def _is_command(prompt: str, options: Options) -> bool:
    """Whether the CLI may take the words for a command."""
    if options.literal or options.instructions is not None:
        return False
    return any(_is_text(text) and text.lstrip().startswith("/") for text in (prompt, options.template))


def _is_text(given: Any) -> TypeGuard[str]:
    """What is no text is refused when the run is planned, not here."""
    return isinstance(given, str)


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
    is_correction: bool = False
    """It asks for a valid answer, and does not repeat what failed."""


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
