"""Tests of `Retries`: which attempt follows each ending, and the total usage of all attempts."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import ModelUsage, Options, Usage
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.outcome import Failure
from geminids.run.accounting.cost import sum_of
from geminids.run.retry import Decided, Retries
from geminids.run.schema.answer_schema import AnswerSchema, answer_schema_of

BUSY = Ending("failed", "m", Failure(kind="server", message="m", retryable=True, hint="h"))
NO_QUOTA = Ending("failed", "m", Failure(kind="quota_day", message="m", retryable=False, hint="h"))
SCHEMA = answer_schema_of({"type": "integer"})


def make_retries(prompt: str = "hi", schema: AnswerSchema | None = None, **fields: Any) -> Retries:
    return Retries(prompt, Options(**fields), schema)


def end_attempt(retries: Retries, ending: Ending, **fields: Any) -> Any:
    """End the current attempt; start the next one if there is one, and return the decision."""
    defaults: dict[str, Any] = {"answer": "", "session_id": "s", "tool_calls": 0}
    decided = retries.decide(ending, **{**defaults, **fields})
    if decided.next is not None:
        retries.started(decided.next)
    return decided


def test_a_plain_run_is_one_attempt() -> None:
    """A plain run has one attempt, and its prompt is unchanged."""
    retries = make_retries()
    assert not retries.possible
    assert retries.prompt == "hi"
    assert end_attempt(retries, BUSY) == Decided(BUSY)


def test_tools_of_an_earlier_attempt_count() -> None:
    """If tools ran in the first attempt, all later attempts resume its session, even if the second
    one ran no tool."""
    retries = make_retries(retries=5)
    assert end_attempt(retries, BUSY, tool_calls=1).next.resume == "s"
    assert end_attempt(retries, BUSY).next.resume == "s"


def test_a_fallback_model_is_kept() -> None:
    """After a fallback, a retry uses the fallback model and not the first one, whose quota is used
    up."""
    retries = make_retries(model="pro", retries=3, fallback_models=("flash", "flash-lite"))
    assert end_attempt(retries, NO_QUOTA).next.model == "flash"
    assert end_attempt(retries, BUSY).next.model == "flash"
    assert end_attempt(retries, NO_QUOTA).next.model == "flash-lite"
    assert end_attempt(retries, BUSY).next is None, "four attempts have failed"


def test_a_schema_question_uses_the_current_model() -> None:
    """A schema question, which asks the model again for a valid answer, uses the current model and
    not the first one."""
    retries = make_retries(schema=SCHEMA, model="pro", fallback_models=("flash",))
    end_attempt(retries, NO_QUOTA)
    assert end_attempt(retries, Ending("success"), answer="no").next.model == "flash"


def test_a_valid_answer_ends_the_run() -> None:
    """A valid answer ends the run; its value is kept, plain and as the caller's type."""
    retries = make_retries(schema=SCHEMA)
    assert end_attempt(retries, Ending("success"), answer="3") == Decided(Ending("success"))
    assert (retries.value, retries.plain) == (3, 3)


def test_the_model_is_asked_again_after_an_invalid_answer() -> None:
    """After an invalid answer the model is asked again in the same session, with the errors, up to
    `schema_tries` times."""
    retries = make_retries(schema=SCHEMA, schema_tries=2)
    for _ in range(2):
        decided = end_attempt(retries, Ending("success"), answer='"x"')
        assert (decided.next.resume, decided.next.delay) == ("s", 0)
        assert "/: 'x' is not of type 'integer'" in decided.next.prompt
        assert (decided.ending.outcome, decided.ending.failure.kind) == ("failed", "schema_mismatch")
    decided = end_attempt(retries, Ending("success"), answer="no")
    assert decided.next is None
    assert (decided.ending.outcome, decided.ending.failure.kind) == ("failed", "schema_mismatch")


def test_a_failed_schema_question_is_retried() -> None:
    """After a server error at a schema question, the retry resumes the session."""
    retries = make_retries(schema=SCHEMA, retries=1)
    end_attempt(retries, Ending("success"), answer="no")
    assert end_attempt(retries, BUSY).next.resume == "s"


def test_schema_questions_and_retries_are_counted_separately() -> None:
    """Schema questions and retries are counted separately."""
    retries = make_retries(schema=SCHEMA, retries=2, schema_tries=1)
    for _ in range(2):
        assert end_attempt(retries, BUSY).next is not None
    assert end_attempt(retries, Ending("success"), answer="no").next is not None
    assert end_attempt(retries, BUSY).next is None
    assert end_attempt(retries, Ending("success"), answer="no").next is None


@pytest.mark.parametrize("outcome", ["interrupted", "timed_out", "max_turns", "over_budget"])
def test_a_stopped_run_is_not_retried(outcome: Any) -> None:
    """After a stop or a limit of the caller, no attempt follows."""
    ending = Ending(outcome, "r")
    assert end_attempt(make_retries(schema=SCHEMA, retries=3, fallback_models=("flash",)), ending) == Decided(
        ending
    )


def test_the_schema_is_not_appended_to_a_command() -> None:
    """The schema is not appended to a CLI command, because it would become its arguments.

    A second prompt sends it, which does not count as a try.
    """
    retries = make_retries("/review", SCHEMA, schema_tries=0)
    assert retries.prompt == "/review"
    decided = end_attempt(retries, Ending("success"), answer="Looks good.")
    assert '{"type": "integer"}' in decided.next.prompt
    assert end_attempt(retries, Ending("success"), answer="no").next is None
    as_text = make_retries("/review", SCHEMA, literal=True)
    assert "JSON Schema" in as_text.prompt


def test_a_command_is_not_repeated() -> None:
    """A CLI command is resumed and not repeated, because it may have run a shell before the model
    was asked."""
    assert end_attempt(make_retries("/deploy", retries=1), BUSY).next.resume == "s"
    decided = end_attempt(make_retries("/deploy", retries=1), BUSY, session_id=None)
    assert (decided.next, "a tool may have changed something" in decided.why_not) == (None, True)
    assert end_attempt(make_retries("/deploy", retries=1, literal=True), BUSY).next.resume is None


def test_an_empty_prompt_stays_empty() -> None:
    """An empty prompt stays empty even with a schema; a template is a prompt."""
    assert make_retries("", SCHEMA).prompt == ""
    assert "JSON Schema" in make_retries("", SCHEMA, template="Say who was first.").prompt


def test_the_usage_of_all_attempts_is_added() -> None:
    """The usage of all attempts is added, also by model.

    A count that one attempt does not know is None; attempts without usage add nothing.
    """
    first = Usage(
        input=1,
        cached=0,
        output=2,
        thinking=None,
        tool=0,
        total=3,
        requests=1,
        models=(ModelUsage(model="a", input=1),),
    )
    second = Usage(
        input=10,
        cached=5,
        output=20,
        thinking=1,
        tool=0,
        total=31,
        requests=2,
        models=(ModelUsage(model="a", input=10),),
    )
    total = sum_of([first, None, second])
    assert total is not None
    assert (total.input, total.cached, total.output, total.thinking, total.requests) == (11, 5, 22, None, 3)
    assert [(model.model, model.input) for model in total.models] == [("a", 11)]
    assert sum_of([None, None]) is None
