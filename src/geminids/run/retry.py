"""Decide what follows an attempt: its ending stands, it is retried, or a valid answer is asked for."""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Any, TypeGuard

import msgspec

from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.options import Options
from geminids.outcome import Failure, FailureKind
from geminids.run.schema.answer_schema import Wanted

__all__ = ["CONTINUE", "LONGEST_WAIT", "Decided", "NextAttempt", "Retries", "Stands", "next_attempt"]

_ASK_AGAIN = (
    "Your answer is not valid by the JSON Schema that was asked for:\n\n{problems}\n\n"
    "Answer again, with the whole JSON value in one ```json block and nothing after it."
)


class Decided(msgspec.Struct, frozen=True):
    """What follows an attempt: `next`, or the run ends with `ending`. `why_not`: why a retry was ruled out."""

    ending: Ending
    next: NextAttempt | None = None
    why_not: str | None = None
    is_given_up: bool = False
    """Nobody waited for the answer to be checked."""


class Retries:
    """Counts the attempts of one run or chat turn and decides what follows each.

    `value` is the answer as the schema asks for it, in the caller's own type; `plain` is the same as JSON.
    """

    def __init__(self, prompt: str, options: Options, schema: Wanted | None) -> None:
        self.options = options
        self._schema = schema
        self._failures = 0
        self._corrections = 0
        self._models: list[str | None] = [options.model]
        # A command may run a shell before the model is asked, and the text behind it is its arguments.
        is_command = _is_command(prompt, options)
        self._acted = is_command
        has_text = _is_text(prompt) and bool(prompt.strip() or options.template)
        self._schema_sent = schema is not None and has_text and not is_command
        self.prompt = f"{prompt}\n\n{schema.instruction()}" if schema and self._schema_sent else prompt
        """What the first attempt sends: the prompt, and what the schema asks of the answer."""
        self.value: Any = None
        self.plain: Any = None

    def begin(self, options: Options) -> None:
        """The first attempt starts with these options: the session to resume was looked up meanwhile."""
        self.options = options
        self._models = [options.model]

    @property
    def possible(self) -> bool:
        """Whether there can be more than one attempt."""
        return bool(self.options.retries or self.options.fallback_models or self._schema is not None)

    @property
    def has_schema(self) -> bool:
        return self._schema is not None

    def decide(
        self,
        ending: Ending,
        *,
        answer: str,
        session_id: str | None,
        tool_calls: int,
        given_up: Callable[[], str | None] = lambda: None,
    ) -> Decided:
        """What follows an attempt that ended like this.

        To check a long answer against a slow schema takes a while: `given_up` returns a reason when nobody waits for
        it any longer.
        """
        self._acted = self._acted or tool_calls > 0
        if ending.outcome == "success" and self._schema is not None:
            return self._check_answer(self._schema, ending, answer, session_id, given_up)
        if ending.outcome != "failed":
            return Decided(ending)
        self._failures += 1
        found = next_attempt(
            ending,
            self.options,
            failures=self._failures,
            session_id=session_id,
            has_acted=self._acted,
            used_models=tuple(self._models),
        )
        if isinstance(found, Stands):
            return Decided(ending, why_not=found.why)
        return Decided(ending, found)

    def started(self, attempt: NextAttempt) -> None:
        """The next attempt was started."""
        if attempt.model != self._models[-1]:
            self._models.append(attempt.model)

    def _check_answer(
        self,
        schema: Wanted,
        ending: Ending,
        answer: str,
        session_id: str | None,
        given_up: Callable[[], str | None],
    ) -> Decided:
        from geminids.run.schema.isolated_validation import checked_in_time  # imported late: jsonschema

        found = checked_in_time(answer, schema.schema, given_up=given_up)
        if found is None:
            return Decided(Ending("interrupted", given_up()), is_given_up=True)
        problems = found.problems
        if found.found:
            try:
                self.value, self.plain = schema.value_of(found.value), found.value
                return Decided(ending)
            except ValueError as error:
                problems = (str(error)[:1000],)
        summary = "; ".join(problems[:3])
        failure = Failure(
            kind="schema_mismatch",
            message=f"the answer is not valid by the schema: {summary}",
            retryable=False,
            hint=hint_for("schema_mismatch"),
        )
        failed = Ending("failed", failure.message, failure)
        if session_id is None or (self._schema_sent and self._corrections >= self.options.schema_tries):
            return Decided(failed)
        lines = "\n".join(f"- {problem}" for problem in problems)
        correction = NextAttempt(
            delay=0.0,
            resume=session_id,
            model=self._models[-1],
            prompt=_ASK_AGAIN.format(problems=lines) if self._schema_sent else schema.instruction(),
            why=f"schema_mismatch: {summary}; asked again in session {session_id}",
            is_correction=True,
        )
        self._corrections += self._schema_sent
        self._acted = self._schema_sent = True
        return Decided(failed, correction)


def _is_command(prompt: str, options: Options) -> bool:
    """Whether the CLI may take the words for a command."""
    if options.literal or options.instructions is not None:
        return False
    return any(_is_text(text) and text.lstrip().startswith("/") for text in (prompt, options.template))


def _is_text(given: Any) -> TypeGuard[str]:
    """What is no text is refused when the run is planned, not here."""
    return isinstance(given, str)


# Sent to a session in which tools have run: the same prompt again could run them twice.
CONTINUE = (
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


class NextAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The next attempt: after so many seconds, in the session or anew, with this model, and why."""

    delay: float
    resume: str | None
    model: str | None
    prompt: str | None
    """What is sent; None for the run's own prompt."""
    why: str
    is_correction: bool = False
    """It asks for a valid answer, and does not repeat what failed."""


class Stands(msgspec.Struct, frozen=True):
    """No further attempt, though another could have been expected; why."""

    why: str


def next_attempt(
    ending: Ending,
    options: Options,
    *,
    failures: int,
    session_id: str | None,
    has_acted: bool,
    used_models: tuple[str | None, ...],
    jitter: Callable[[], float] = random,
) -> NextAttempt | Stands | None:
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
    return NextAttempt(
        delay=0.0 if changes else _delay(failures, failure.retry_after, jitter()),
        resume=session_id if has_acted else options.resume,
        model=model,
        prompt=CONTINUE if has_acted else None,
        why=f"{failure.kind}: {failure.message.rstrip('. ')}; the next attempt {how}{named}",
    )


def _delay(failures: int, retry_after: float | None, jitter: float) -> float:
    """What the API asks for; else 1, 2, 4 … 60 seconds, and up to a fifth more so that many do not come at once."""
    wait = min(_FIRST * 2 ** (failures - 1), _MOST) if retry_after is None else retry_after
    return wait * (1 + jitter / 5)
