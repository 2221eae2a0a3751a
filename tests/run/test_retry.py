"""The attempts of a run: what each ending leads to, and what they cost together."""

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


def tried(prompt: str = "hi", schema: AnswerSchema | None = None, **fields: Any) -> Retries:
    return Retries(prompt, Options(**fields), schema)


def over(attempts: Retries, ending: Ending, **fields: Any) -> Any:
    """The attempt is over, and the next one begins where there is one."""
    given: dict[str, Any] = {"answer": "", "session_id": "s", "tool_calls": 0}
    after = attempts.decide(ending, **{**given, **fields})
    if after.next is not None:
        attempts.started(after.next)
    return after


def test_a_plain_run_is_one_attempt() -> None:
    """Nothing is put behind its prompt, and nothing is tried again."""
    attempts = tried()
    assert not attempts.possible
    assert attempts.prompt == "hi"
    assert over(attempts, BUSY) == Decided(BUSY)


def test_tools_of_an_earlier_attempt_count() -> None:
    """What the first attempt did is not done again by the third, though the second did nothing."""
    attempts = tried(retries=5)
    assert over(attempts, BUSY, tool_calls=1).next.resume == "s"
    assert over(attempts, BUSY).next.resume == "s"


def test_a_fall_back_model_stays() -> None:
    """A retry after it does not go back to the model whose quota is gone."""
    attempts = tried(model="pro", retries=3, fallback_models=("flash", "flash-lite"))
    assert over(attempts, NO_QUOTA).next.model == "flash"
    assert over(attempts, BUSY).next.model == "flash"
    assert over(attempts, NO_QUOTA).next.model == "flash-lite"
    assert over(attempts, BUSY).next is None, "four attempts have failed"


def test_a_form_is_asked_for_with_the_model_in_use() -> None:
    """Not with the one that the run began with."""
    attempts = tried(schema=SCHEMA, model="pro", fallback_models=("flash",))
    over(attempts, NO_QUOTA)
    assert over(attempts, Ending("success"), answer="no").next.model == "flash"


def test_a_valid_answer_ends_it() -> None:
    """The value is kept, as it is and as the caller's type."""
    attempts = tried(schema=SCHEMA)
    assert over(attempts, Ending("success"), answer="3") == Decided(Ending("success"))
    assert (attempts.value, attempts.plain) == (3, 3)


def test_an_answer_that_is_not_valid_is_asked_for_again() -> None:
    """In the same session, with the errors, as often as was said; it is a failure of its own kind all the while."""
    attempts = tried(schema=SCHEMA, schema_tries=2)
    for _ in range(2):
        after = over(attempts, Ending("success"), answer='"x"')
        assert (after.next.resume, after.next.delay) == ("s", 0)
        assert "/: 'x' is not of type 'integer'" in after.next.prompt
        assert (after.ending.outcome, after.ending.failure.kind) == ("failed", "schema_mismatch")
    after = over(attempts, Ending("success"), answer="no")
    assert after.next is None
    assert (after.ending.outcome, after.ending.failure.kind) == ("failed", "schema_mismatch")


def test_a_failure_while_asking_again_goes_on() -> None:
    """The conversation holds the work: a server error at the second question does not begin it anew."""
    attempts = tried(schema=SCHEMA, retries=1)
    over(attempts, Ending("success"), answer="no")
    assert over(attempts, BUSY).next.resume == "s"


def test_tries_for_the_form_and_retries_are_counted_apart() -> None:
    """Two retries and one question more: neither takes from the other."""
    attempts = tried(schema=SCHEMA, retries=2, schema_tries=1)
    for _ in range(2):
        assert over(attempts, BUSY).next is not None
    assert over(attempts, Ending("success"), answer="no").next is not None
    assert over(attempts, BUSY).next is None
    assert over(attempts, Ending("success"), answer="no").next is None


@pytest.mark.parametrize("outcome", ["interrupted", "timed_out", "max_turns", "over_budget"])
def test_what_the_caller_has_ended_stays_ended(outcome: Any) -> None:
    """Limits are the caller's own: no attempt follows, of whatever kind."""
    ending = Ending(outcome, "r")
    assert over(tried(schema=SCHEMA, retries=3, fallback_models=("flash",)), ending) == Decided(ending)


def test_a_command_is_not_given_the_form() -> None:
    """What stands behind a command are its arguments: the form is asked for afterwards, and that is no try."""
    attempts = tried("/review", SCHEMA, schema_tries=0)
    assert attempts.prompt == "/review"
    after = over(attempts, Ending("success"), answer="Looks good.")
    assert '{"type": "integer"}' in after.next.prompt
    assert over(attempts, Ending("success"), answer="no").next is None
    as_text = tried("/review", SCHEMA, literal=True)
    assert "JSON Schema" in as_text.prompt


def test_a_command_is_not_begun_anew() -> None:
    """It may have run a shell before the model was asked."""
    assert over(tried("/deploy", retries=1), BUSY).next.resume == "s"
    after = over(tried("/deploy", retries=1), BUSY, session_id=None)
    assert (after.next, "a tool may have run" in after.why_not) == (None, True)
    assert over(tried("/deploy", retries=1, literal=True), BUSY).next.resume is None


def test_no_prompt_stays_none() -> None:
    """A form alone is no task; a template is one."""
    assert tried("", SCHEMA).prompt == ""
    assert "JSON Schema" in tried("", SCHEMA, template="Say who was first.").prompt


def test_the_tokens_of_all_attempts() -> None:
    """Summed, model by model; what one does not know, nobody knows; one without usage has none."""
    one = Usage(
        input=1,
        cached=0,
        output=2,
        thinking=None,
        tool=0,
        total=3,
        requests=1,
        models=(ModelUsage(model="a", input=1),),
    )
    two = Usage(
        input=10,
        cached=5,
        output=20,
        thinking=1,
        tool=0,
        total=31,
        requests=2,
        models=(ModelUsage(model="a", input=10),),
    )
    total = sum_of([one, None, two])
    assert total is not None
    assert (total.input, total.cached, total.output, total.thinking, total.requests) == (11, 5, 22, None, 3)
    assert [(model.model, model.input) for model in total.models] == [("a", 11)]
    assert sum_of([None, None]) is None
