"""Runs with a schema: the answer is valid at once, valid after a correction, or never valid."""

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


def ask_with_replies(world: Any, *texts: str, schema: Any = SCHEMA, **fields: Any) -> Any:
    for text in texts:
        world.gateway.reply(text=text)
    return geminids.ask_sync("Who was first?", world.options(**fields), schema=schema)


@pytest.mark.parametrize(
    "text",
    [f"```json\n{GOOD}\n```", pytest.param(f"She was: {GOOD}. Yes.", marks=pytest.mark.deep)],
)
def test_a_valid_first_answer(world: Any, text: str) -> None:
    """A valid first answer takes one request, which contains the schema."""
    result = ask_with_replies(world, text)
    assert (result.ok, result.value, result.attempts) == (True, {"name": "Ada", "age": 36}, 1), result.failure
    (request,) = [one for one in world.gateway.requests if one.method == "stream"]
    assert '"required": ["name", "age"]' in request.last_user_text


def test_an_invalid_answer_is_corrected(world: Any) -> None:
    """After an invalid answer, the model receives the exact errors in the same session. The
    corrected value has the caller's type."""
    result = ask_with_replies(world, '{"name": "Ada"}', GOOD, schema=Person)
    assert (result.ok, result.value, result.attempts) == (True, Person("Ada", 36), 2), result.failure
    again = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert "'age' is a required property" in again.last_user_text
    assert "Who was first?" in str(again.user_texts), "it is the same conversation"


@pytest.mark.deep
def test_nested_references(world: Any) -> None:
    """An error below two `$ref` references is found. The model receives its path, and the corrected
    answer is accepted."""
    schema = {
        "$ref": "#/$defs/people",
        "$defs": {"people": {"type": "array", "items": {"$ref": "#/$defs/person"}}, "person": SCHEMA},
    }
    result = ask_with_replies(world, f'[{GOOD}, {{"name": "Bob", "age": "old"}}]', f"[{GOOD}]", schema=schema)
    assert (result.value, result.attempts) == ([{"name": "Ada", "age": 36}], 2), result.failure
    again = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert "/1/age: 'old' is not of type 'integer'" in again.last_user_text


def test_a_schema_that_is_never_met(world: Any) -> None:
    """If no answer is valid, the run fails with `schema_mismatch` and keeps the last answer."""
    result = ask_with_replies(world, "no", "never", schema_tries=1)
    assert (result.outcome, result.failure.kind, result.attempts) == ("failed", "schema_mismatch", 2)
    assert (result.answer, result.value) == ("never", None)


@pytest.mark.deep
def test_a_huge_answer(world: Any) -> None:
    """A JSON answer of two megabytes is parsed completely."""
    value = {"name": "x" * 10, "age": 1, "list": [f"item {number}" for number in range(100_000)]}
    text = f"Here:\n```json\n{json.dumps(value)}\n```"
    # Send the text in pieces, as models do: the CLI cuts off a single line of two megabytes at its
    # exit.
    world.gateway.reply(text=[text[at : at + 10_000] for at in range(0, len(text), 10_000)])
    result = ask_with_replies(world)
    assert result.value == value, result.failure


def test_only_the_answer_counts(make_world: Any) -> None:
    """Only the model's last text counts as the answer. Valid JSON in tool output, thoughts or text
    before a tool call does not."""
    world = make_world("0.61.0")
    (world.cwd / "ada.json").write_text(GOOD)
    call = Call("read_file", {"file_path": str(world.cwd / "ada.json")})
    world.gateway.reply(text=GOOD, calls=[call])
    world.gateway.reply(thought=GOOD, text="It is in the file.")
    result = ask_with_replies(world, GOOD.replace("36", "37"))
    assert (result.value, result.attempts) == ({"name": "Ada", "age": 37}, 2), result.failure


def test_an_at_sign_in_a_schema_adds_no_file(make_world: Any) -> None:
    """An `@path` in the schema, or in an invalid answer that a correction quotes, adds no file."""
    world = make_world("0.61.0")
    (world.cwd / "secret.txt").write_text("Zarathustra")
    schema = {"type": "object", "properties": {"a": {"type": "integer", "description": "see @secret.txt"}}}
    result = ask_with_replies(world, '{"a": "@secret.txt"}', '{"a": 1}', schema=schema)
    assert (result.value, result.attempts) == ({"a": 1}, 2), result.failure
    first, second = (one for one in world.gateway.requests if one.method == "stream")
    assert "\\u0040secret.txt" in first.last_user_text
    assert "secret.txt' is not of type 'integer'" in second.last_user_text
    assert "Zarathustra" not in str((first.body, second.body))


@pytest.mark.deep
def test_a_slash_command_gets_the_schema_afterwards(make_world: Any) -> None:
    """A slash command is sent without the schema, because text after a command is its arguments. A
    second attempt in the same session asks for the JSON."""
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
def test_the_api_fails_during_a_correction(make_world: Any) -> None:
    """If the API fails during a correction, the next attempt continues the same session."""
    world = make_world("0.61.0")
    world.gateway.reply(text="no")
    world.gateway.reply(status=500)
    result = ask_with_replies(world, GOOD, retries=1, schema_tries=1)
    assert (result.ok, result.attempts) == (True, 3), result.failure
    last = [one for one in world.gateway.requests if one.method == "stream"][-1]
    assert "Who was first?" in str(last.user_texts)


def test_an_invalid_schema_starts_nothing(make_world: Any) -> None:
    """An invalid schema raises `OptionsError`, and no process starts."""
    world = make_world("0.61.0")
    with pytest.raises(OptionsError, match="not a valid JSON Schema"):
        ask_with_replies(world, schema={"type": "nope"})
    assert world.gateway.requests == []
    assert marked(os.environ[MARKER]) == []
