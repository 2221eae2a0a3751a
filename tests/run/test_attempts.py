"""The attempts of a run: what each ending leads to, and what they cost together."""

from __future__ import annotations

from typing import Any

from geminids import ModelUsage, Options, Usage
from geminids.outcome import Failure
from geminids.run.attempts import Attempts, sum_of
from geminids.run.wanted import wanted_of
from geminids.wire.endings import Ending

BUSY = Ending("failed", "m", Failure(kind="server", message="m", retryable=True, hint="h"))
WANTED = wanted_of({"type": "integer"})


def over(attempts: Attempts, ending: Ending, **fields: Any) -> Any:
    given: dict[str, Any] = {"answer": "", "session_id": "s", "tool_calls": 0, "usage": None}
    return attempts.over(ending, **{**given, **fields})


def test_a_plain_run_is_one_attempt() -> None:
    """Nothing is put behind its prompt, and nothing is tried again."""
    attempts = Attempts(Options(), None)
    assert not attempts.may_be_several
    assert attempts.worded("hi") == "hi"
    assert over(attempts, BUSY) == (BUSY, None)


def test_tools_of_an_earlier_attempt_count() -> None:
    """What the first attempt did is not done again by the third, though the second did nothing."""
    attempts = Attempts(Options(retries=5), None)
    _, again = over(attempts, BUSY, tool_calls=1)
    assert again.resume == "s"
    _, again = over(attempts, BUSY)
    assert again.resume == "s"


def test_a_valid_answer_ends_it() -> None:
    """The value is kept, as it is and as the caller's type."""
    attempts = Attempts(Options(), WANTED)
    ending, again = over(attempts, Ending("success"), answer="3")
    assert (ending.outcome, again, attempts.value, attempts.plain) == ("success", None, 3, 3)


def test_an_answer_that_is_not_valid_is_asked_for_again() -> None:
    """In the same session, with the errors, as often as was said; then it is a failure of its own kind."""
    attempts = Attempts(Options(schema_tries=1), WANTED)
    _, again = over(attempts, Ending("success"), answer='"x"')
    assert (again.resume, again.delay) == ("s", 0)
    assert "/: 'x' is not of type 'integer'" in again.prompt
    ending, again = over(attempts, Ending("success"), answer="no")
    assert again is None
    assert (ending.outcome, ending.failure.kind) == ("failed", "schema_mismatch")


def test_a_failure_while_asking_again_goes_on() -> None:
    """The conversation holds the work: a server error at the second question does not begin it anew."""
    attempts = Attempts(Options(retries=1), WANTED)
    over(attempts, Ending("success"), answer="no")
    _, again = over(attempts, BUSY)
    assert again.resume == "s"


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
    attempts = Attempts(Options(retries=1), None)
    over(attempts, BUSY, usage=one)
    assert attempts.usage(two) == sum_of([one, two])
