"""An answer in the form that was asked for: right at once, right at last, never right."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

import geminids
from geminids import OptionsError
from geminids.process.tree import marked

pytestmark = pytest.mark.real


class Person(msgspec.Struct):
    name: str
    age: int


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
GOOD = '{"name": "Ada", "age": 36}'


def asked(world: Any, *texts: str, schema: Any = SCHEMA, **fields: Any) -> Any:
    for text in texts:
        world.gateway.reply(text=text)
    return geminids.ask_sync("Who was first?", world.options(**fields), schema=schema)


@pytest.mark.parametrize(
    "text",
    [f"```json\n{GOOD}\n```", pytest.param(f"She was: {GOOD}. Yes.", marks=pytest.mark.deep)],
)
def test_right_at_once(world: Any, text: str) -> None:
    """One request; the model was told the schema; the value is there."""
    result = asked(world, text)
    assert (result.ok, result.value, result.attempts) == (True, {"name": "Ada", "age": 36}, 1), result.failure
    (request,) = [one for one in world.gateway.requests if one.method == "stream"]
    assert '"required": ["name", "age"]' in request.last_user_text


def test_right_at_the_second_try(world: Any) -> None:
    """Asked again in the same session, with the exact errors; the value has the caller's own type."""
    result = asked(world, '{"name": "Ada"}', GOOD, schema=Person)
    assert (result.ok, result.value, result.attempts) == (True, Person("Ada", 36), 2), result.failure
    again = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert "'age' is a required property" in again.last_user_text
    assert "Who was first?" in str(again.user_texts), "it is the same conversation"


def test_never_right(world: Any) -> None:
    """After so many tries: `schema_mismatch`, with the last answer kept."""
    result = asked(world, "no", "nor now", "never", schema_tries=2)
    assert (result.outcome, result.failure.kind, result.attempts) == ("failed", "schema_mismatch", 3)
    assert (result.answer, result.value) == ("never", None)


@pytest.mark.deep
def test_a_huge_answer(world: Any) -> None:
    """Two megabytes of JSON."""
    value = {"name": "x" * 10, "age": 1, "list": [f"item {number}" for number in range(100_000)]}
    text = f"Here:\n```json\n{json.dumps(value)}\n```"
    # In pieces, as models speak: of one line of two megabytes the CLI prints a part when it ends.
    world.gateway.reply(text=[text[at : at + 10_000] for at in range(0, len(text), 10_000)])
    result = asked(world)
    assert result.value == value, result.failure


def test_a_schema_that_is_wrong_starts_nothing(make_world: Any) -> None:
    """Refused before the run."""
    world = make_world("0.61.0")
    with pytest.raises(OptionsError, match="no valid JSON Schema"):
        asked(world, schema={"type": "nope"})
    assert world.gateway.requests == []
    assert marked("run-of-a-test") == []
