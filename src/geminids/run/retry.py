"""Decide what follows an attempt: the end of the run, a retry, or a request for a valid answer.

An answer is valid if it matches the caller's JSON Schema.
"""

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

__all__ = ["CONTINUE", "LONGEST_WAIT", "Decided", "NextAttempt", "NoRetry", "Retries", "next_attempt"]

_ASK_AGAIN = (
    "Your answer does not match the JSON Schema:\n\n{problems}\n\n"
    "Answer again, with the whole JSON value in one ```json block and nothing after it."
)


class Decided(msgspec.Struct, frozen=True):
    """The decision after an attempt.

    If `next` is None, the run ends with `ending`. Otherwise the attempt `next` is started.
    `why_not` is the reason if the decision is `NoRetry`; otherwise it is None.
    """

    ending: Ending
    next: NextAttempt | None = None
    why_not: str | None = None
    is_given_up: bool = False
    """Whether the run was stopped while its answer was being validated."""


class Retries:
    """Counts the attempts of one run or turn of a chat, and decides what follows each attempt.

    `value` is the validated answer, converted to the caller's type. `plain` is the same answer as
    plain JSON values.
    """

    def __init__(self, prompt: str, options: Options, schema: AnswerSchema | None) -> None:
        self.options = options
        self._schema = schema
        self._failures = 0
        self._corrections = 0
        self._models: list[str | None] = [options.model]
        # A slash command may run a shell command before the model receives the prompt. So treat it
        # as if a tool has run. Add no text to the prompt: the text would become an argument of the
        # slash command.
        is_command = _is_command(prompt, options)
        self._acted = is_command
        has_text = _is_text(prompt) and bool(prompt.strip() or options.template)
        self._schema_sent = schema is not None and has_text and not is_command
        self.prompt = f"{prompt}\n\n{schema.instruction()}" if schema and self._schema_sent else prompt
        """The prompt of the first attempt.

        If the run has a schema, the prompt ends with an instruction to follow the schema. A slash
        command gets no instruction.
        """
        self.value: Any = None
        self.plain: Any = None

    def begin(self, options: Options) -> None:
        """Set the options of the first attempt.

        `options.resume` must be the full id of the session to resume, or None.
        """
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
        """Decide what follows an attempt that ended with `ending`.

        `answer` and `session_id` are those of the attempt. `tool_calls` is the number of tool calls
        in the run so far. `given_up` is a function that is called while the answer is being
        validated, because a validation can take seconds. It returns a reason if the run was stopped
        meanwhile, otherwise None.
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
        if isinstance(decision, NoRetry):
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
        # Imported late, because it imports jsonschema, and most runs have no schema.
        from geminids.run.schema.isolated_validation import checked_in_time

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
            hint=_NO_JSON_OFFLINE if self.options.offline else hint_for("schema_mismatch"),
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
            why=f"schema_mismatch: {summary}; asking the model again in session {session_id}",
            is_correction=True,
        )
        self._corrections += self._schema_sent
        self._acted = self._schema_sent = True
        return Decided(failed, correction)


_NO_JSON_OFFLINE = (
    "The built-in script never answers with JSON. Write the answer into a script file: `script`."
)


def _is_command(prompt: str, options: Options) -> bool:
    """Return whether the CLI may treat the prompt as a slash command."""
    if options.literal or options.instructions is not None:
        return False
    return any(_is_text(text) and text.lstrip().startswith("/") for text in (prompt, options.template))


def _is_text(value: Any) -> TypeGuard[str]:
    """Return whether a value is a string. Other values are refused later, before the CLI starts."""
    return isinstance(value, str)


# The prompt with which a session continues after tools have run. Repeating the first prompt could
# run these tools twice.
CONTINUE = (
    "You were interrupted before you had finished. Continue from where you stopped. The effects of your tool calls "
    "remain, even of calls whose result you did not see: check the current state before you repeat anything."
)
LONGEST_WAIT = 300.0
"""The longest wait before an attempt, in seconds.

If the API asks for a longer wait, geminids does not wait. It tries a fallback model if one can
help; otherwise the run fails. The reason: a run that waits for hours looks as if it hangs.
"""
_FIRST, _MOST = 1.0, 60.0
# For these failures, waiting does not help, but another model may.
_OTHER_MODEL: tuple[FailureKind, ...] = ("quota_day", "model_not_found")
# For these failures, first wait and retry. If that does not help, another model may.
_BUSY: tuple[FailureKind, ...] = ("quota_minute", "server")
# These failures are caused by the content of the session: a resumed session would fail again.
_POISONED: tuple[FailureKind, ...] = ("bad_request", "loop", "blocked")


class NextAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """How to start the next attempt, and why."""

    delay: float
    """Seconds to wait before the attempt."""
    resume: str | None
    """The id of the session to resume, or None for a new session."""
    model: str | None
    prompt: str | None
    """The prompt to send, or None for the prompt of the run."""
    why: str
    is_correction: bool = False
    """Whether the attempt asks for a new answer, because the last one did not match the schema.

    If False, the attempt repeats or continues a failed attempt.
    """


class NoRetry(msgspec.Struct, frozen=True):
    """The decision that no attempt follows, although the options and the failure allow a retry.

    `why` is the reason. The run reports it in a notice.
    """

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
) -> NextAttempt | NoRetry | None:
    """Return the attempt that follows a failed attempt, or None or `NoRetry` if none follows.

    There are three cases:
    - `NextAttempt`: a retry, or an attempt with a fallback model.
    - None: the options or the failure do not allow a retry. Examples: the option `retries` is used
      up, or the failure is not retryable, such as an invalid API key.
    - `NoRetry`: the options and the failure allow a retry, but something else prevents it.
      Examples: the API asks for a wait of an hour, or a tool has run and there is no session to
      continue.

    `ending` is that of the failed attempt. `failures` is the number of failed attempts, including
    this one. `has_acted` is True if a tool may have run in this conversation: the prompt must then
    not be sent again, because the tool could act twice. `used_models` are the models of all
    attempts so far, the current one last. `jitter` is a function that returns a random number from
    0 to 1.
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
        return NoRetry(f"the API asks to wait {wait:.0f} s, but a run waits at most {LONGEST_WAIT:.0f} s")
    if has_acted and session_id is None:
        return NoRetry("a tool may have changed something, and there is no session in which to continue")
    if has_acted and failure.kind in _POISONED:
        return NoRetry("tools have run, so the run cannot start over; the resumed session would fail again")
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
    """Return the seconds to wait before the next attempt.

    If the API asked for a wait, `retry_after` is its length. Otherwise the wait is 1 s after the
    first failure, and doubles with each further failure, up to 60 s. A fifth of the wait,
    multiplied by `jitter` (0 to 1), is added, so that several runs do not retry at the same moment.
    """
    wait = min(_FIRST * 2 ** (failures - 1), _MOST) if retry_after is None else retry_after
    return wait * (1 + jitter / 5)
