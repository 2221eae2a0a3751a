"""Decide what follows an attempt: the end of the run, a retry, or a prompt for a valid answer."""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Any, TypeGuard

import msgspec

from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.options import Options
from geminids.outcome import Failure, FailureKind
from geminids.run.schema.answer_schema import AnswerSchema

__all__ = ["CONTINUE", "LONGEST_WAIT", "Decided", "NextAttempt", "Retries", "Stands", "next_attempt"]

_ASK_AGAIN = (
    "Your answer does not match the JSON Schema:\n\n{problems}\n\n"
    "Answer again, with the whole JSON value in one ```json block and nothing after it."
)


class Decided(msgspec.Struct, frozen=True):
    """What follows an attempt: `next`, or the run ends with `ending`.

    `why_not`: why there is no retry.
    """

    ending: Ending
    next: NextAttempt | None = None
    why_not: str | None = None
    is_given_up: bool = False
    """The run was stopped while the answer was validated."""


class Retries:
    """Counts the attempts of one run or chat turn and decides what follows each.

    `value` is the validated answer in the caller's own type; `plain` is the same as JSON.
    """

    def __init__(self, prompt: str, options: Options, schema: AnswerSchema | None) -> None:
        self.options = options
        self._schema = schema
        self._failures = 0
        self._corrections = 0
        self._models: list[str | None] = [options.model]
        # A command may run a shell before the model gets the prompt. Text after its name would
        # become arguments.
        is_command = _is_command(prompt, options)
        self._acted = is_command
        has_text = _is_text(prompt) and bool(prompt.strip() or options.template)
        self._schema_sent = schema is not None and has_text and not is_command
        self.prompt = f"{prompt}\n\n{schema.instruction()}" if schema and self._schema_sent else prompt
        """What the first attempt sends: the prompt, followed by the instruction of the schema."""
        self.value: Any = None
        self.plain: Any = None

    def begin(self, options: Options) -> None:
        """Set the options of the first attempt, with the full id of the session to resume."""
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
        """Decide what follows an attempt with this ending.

        Validating a long answer can be slow: `given_up` returns a reason once the run was stopped
        meanwhile.
        """
        self._acted = self._acted or tool_calls > 0
        if ending.outcome == "success" and self._schema is not None:
            return self._check_answer(self._schema, ending, answer, session_id, given_up)
        if ending.outcome != "failed":
            return Decided(ending)
        self._failures += 1
        decision = next_attempt(
            ending,
            self.options,
            failures=self._failures,
            session_id=session_id,
            has_acted=self._acted,
            used_models=tuple(self._models),
        )
        if isinstance(decision, Stands):
            return Decided(ending, why_not=decision.why)
        return Decided(ending, decision)

    def started(self, attempt: NextAttempt) -> None:
        """Record that the next attempt was started."""
        if attempt.model != self._models[-1]:
            self._models.append(attempt.model)

    def _check_answer(
        self,
        schema: AnswerSchema,
        ending: Ending,
        answer: str,
        session_id: str | None,
        given_up: Callable[[], str | None],
    ) -> Decided:
        from geminids.run.schema.isolated_validation import checked_in_time  # imported late: jsonschema

        checked = checked_in_time(answer, schema.schema, given_up=given_up)
        if checked is None:
            return Decided(Ending("interrupted", given_up()), is_given_up=True)
        problems = checked.problems
        if checked.found:
            try:
                self.value, self.plain = schema.value_of(checked.value), checked.value
                return Decided(ending)
            except ValueError as error:
                problems = (str(error)[:1000],)
        summary = "; ".join(problems[:3])
        failure = Failure(
            kind="schema_mismatch",
            message=f"the answer does not match the schema: {summary}",
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
            why=f"schema_mismatch: {summary}; asking again in session {session_id}",
            is_correction=True,
        )
        self._corrections += self._schema_sent
        self._acted = self._schema_sent = True
        return Decided(failed, correction)


def _is_command(prompt: str, options: Options) -> bool:
    """Whether the CLI may read the prompt as a slash command."""
    if options.literal or options.instructions is not None:
        return False
    return any(_is_text(text) and text.lstrip().startswith("/") for text in (prompt, options.template))


def _is_text(value: Any) -> TypeGuard[str]:
    """Whether a value is a string. Others are rejected later, when the launch is prepared."""
    return isinstance(value, str)


# Sent to a session in which tools have run: repeating the prompt could run them twice.
CONTINUE = (
    "You were cut off before you were done. Go on from where you were. What your tools have done is done, also "
    "where you have not seen how it ended: look at it before you do anything again."
)
LONGEST_WAIT = 300.0
"""Seconds. If the API asks for a longer wait, the run fails: a run that sleeps for hours looks like
one that hangs."""
_FIRST, _MOST = 1.0, 60.0
# Waiting does not help, but another model may.
_OTHER_MODEL: tuple[FailureKind, ...] = ("quota_day", "model_not_found")
# Waiting may help; after that, another model may.
_BUSY: tuple[FailureKind, ...] = ("quota_minute", "server")
# The session itself is the cause: resuming it would fail again.
_POISONED: tuple[FailureKind, ...] = ("bad_request", "loop", "blocked")


class NextAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """How to start the next attempt."""

    delay: float
    """Seconds to wait before it."""
    resume: str | None
    """The session to resume; None for a new one."""
    model: str | None
    prompt: str | None
    """The prompt to send; None for the run's own."""
    why: str
    is_correction: bool = False
    """Whether it asks for a valid answer instead of repeating a failed attempt."""


class Stands(msgspec.Struct, frozen=True):
    """No further attempt, although the caller may expect one; `why` explains it."""

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
    """The next attempt after an ending; None if the options allow none.

    `failures` counts the failed attempts, including this one. `has_acted`: a tool has run in this
    conversation, so the prompt must not be repeated. `used_models` are the models of the attempts
    so far, the current one last.
    """
    failure = ending.failure
    if failure is None:
        return None
    wait = failure.retry_after or 0.0
    fallback = next((name for name in options.fallback_models if name not in used_models), None)
    changes = fallback is not None and (
        failure.kind in _OTHER_MODEL
        or (failure.kind in _BUSY and (failures > options.retries or wait > LONGEST_WAIT))
    )
    if not changes and (not failure.retryable or failures > options.retries):
        return None
    if not changes and wait > LONGEST_WAIT:
        return Stands(f"the API asks to wait {wait:.0f} s, which is more than {LONGEST_WAIT:.0f} s")
    if has_acted and session_id is None:
        return Stands("a tool may have run, and there is no session to resume")
    if has_acted and failure.kind in _POISONED:
        return Stands("tools have run, and resuming this session would fail again")
    model = fallback if changes else used_models[-1]
    how = f"resumes session {session_id}" if has_acted else "starts over"
    with_model = f" with model {model}" if changes else ""
    return NextAttempt(
        delay=0.0 if changes else _delay(failures, failure.retry_after, jitter()),
        resume=session_id if has_acted else options.resume,
        model=model,
        prompt=CONTINUE if has_acted else None,
        why=f"{failure.kind}: {failure.message.rstrip('. ')}; the next attempt {how}{with_model}",
    )


def _delay(failures: int, retry_after: float | None, jitter: float) -> float:
    """The wait that the API asks for, else 1, 2, 4 … 60 s; plus up to a fifth, to spread runs."""
    wait = min(_FIRST * 2 ** (failures - 1), _MOST) if retry_after is None else retry_after
    return wait * (1 + jitter / 5)
