"""An answer in the form that was asked for: right at once, right at last, never right."""

from __future__ import annotations

import json
import os
from typing import Any

import msgspec
import pytest

import geminids
from geminids import OptionsError
from geminids.gateway import Call
from geminids.process.marker import MARKER
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


@pytest.mark.deep
def test_nested_references(world: Any) -> None:
    """What is wrong behind two references is found, asked for again with its place, and right at last."""
    schema = {
        "$ref": "#/$defs/people",
        "$defs": {"people": {"type": "array", "items": {"$ref": "#/$defs/person"}}, "person": SCHEMA},
    }
    result = asked(world, f'[{GOOD}, {{"name": "Bob", "age": "old"}}]', f"[{GOOD}]", schema=schema)
    assert (result.value, result.attempts) == ([{"name": "Ada", "age": 36}], 2), result.failure
    again = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert "/1/age: 'old' is not of type 'integer'" in again.last_user_text


def test_never_right(world: Any) -> None:
    """After so many tries: `schema_mismatch`, with the last answer kept."""
    result = asked(world, "no", "never", schema_tries=1)
    assert (result.outcome, result.failure.kind, result.attempts) == ("failed", "schema_mismatch", 2)
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


def test_only_the_answer_counts(make_world: Any) -> None:
    """Not what a tool has printed, nor what was thought, nor what was said before the tool."""
    world = make_world("0.61.0")
    (world.cwd / "ada.json").write_text(GOOD)
    call = Call("read_file", {"file_path": str(world.cwd / "ada.json")})
    world.gateway.reply(text=GOOD, calls=[call])
    world.gateway.reply(thought=GOOD, text="It is in the file.")
    result = asked(world, GOOD.replace("36", "37"))
    assert (result.value, result.attempts) == ({"name": "Ada", "age": 37}, 2), result.failure


def test_words_of_ours_put_no_file_in(make_world: Any) -> None:
    """An @ in the schema or in what is quoted of the answer is no file of the folder."""
    world = make_world("0.61.0")
    (world.cwd / "secret.txt").write_text("Zarathustra")
    schema = {"type": "object", "properties": {"a": {"type": "integer", "description": "see @secret.txt"}}}
    result = asked(world, '{"a": "@secret.txt"}', '{"a": 1}', schema=schema)
    assert (result.value, result.attempts) == ({"a": 1}, 2), result.failure
    first, second = (one for one in world.gateway.requests if one.method == "stream")
    assert "\\u0040secret.txt" in first.last_user_text
    assert "secret.txt' is not of type 'integer'" in second.last_user_text
    assert "Zarathustra" not in str((first.body, second.body))


@pytest.mark.deep
def test_a_command_and_then_its_form(make_world: Any) -> None:
    """What stands behind a command are its arguments: the form is asked for in its session."""
    world = make_world("0.61.0")
    folder = world.home / ".gemini" / "commands"
    folder.mkdir(parents=True)
    (folder / "who.toml").write_text('prompt = "Who was {{args}}?"\n')
    for text in ("Ada.", GOOD):
        world.gateway.reply(text=text)
    result = geminids.ask_sync("/who first", world.options(schema_tries=0), schema=SCHEMA)
    assert (result.value, result.attempts) == ({"name": "Ada", "age": 36}, 2), result.failure
    first, second = (one for one in world.gateway.requests if one.method == "stream")
    assert first.last_user_text == "Who was first?"
    assert "JSON Schema" in second.last_user_text


@pytest.mark.deep
def test_the_connection_fails_while_the_form_is_asked_for(make_world: Any) -> None:
    """The work is not begun anew: the session goes on, and the tokens of all three attempts count."""
    world = make_world("0.61.0")
    world.gateway.reply(text="no")
    world.gateway.reply(status=500)
    result = asked(world, GOOD, retries=1, schema_tries=1)
    assert (result.ok, result.attempts) == (True, 3), result.failure
    last = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert "Who was first?" in str(last.user_texts)


def test_a_schema_that_is_wrong_starts_nothing(make_world: Any) -> None:
    """Refused before the run."""
    world = make_world("0.61.0")
    with pytest.raises(OptionsError, match="not a valid JSON Schema"):
        asked(world, schema={"type": "nope"})
    assert world.gateway.requests == []
    assert marked(os.environ[MARKER]) == []
