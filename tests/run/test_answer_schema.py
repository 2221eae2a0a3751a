"""The form of an answer: schemas and types, checked before anything is started."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any, Literal, assert_type

import msgspec
import pydantic
import pytest

import geminids
from geminids import OptionsError
from geminids.run.schema.answer_schema import answer_schema_of


class Struct(msgspec.Struct):
    name: str
    age: int = 0


@dataclasses.dataclass
class Data:
    name: str
    age: int = 0


class Model(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(0, ge=0)


@pytest.mark.parametrize("kind", [Struct, Data, Model])
def test_types_become_schemas_and_values_become_types(kind: Any) -> None:
    """msgspec, dataclasses and pydantic."""
    schema = answer_schema_of(kind)
    assert '"name"' in schema.text
    value = schema.value_of({"name": "x", "age": 3})
    assert isinstance(value, kind)
    assert (value.name, value.age) == ("x", 3)
    with pytest.raises(ValueError):
        schema.value_of({"name": 1})


@pytest.mark.parametrize("kind", [Struct, Data, Model])
def test_lists_of_them(kind: Any) -> None:
    """Whatever a type is made of."""
    (value,) = answer_schema_of(list[kind]).value_of([{"name": "x"}])
    assert isinstance(value, kind)


def test_a_schema_gives_plain_values() -> None:
    """As text or as a mapping; and the model is told it."""
    for given in ('{"type": "integer"}', {"type": "integer"}):
        schema = answer_schema_of(given)
        assert schema.value_of(3) == 3
        assert '{"type": "integer"}' in schema.instruction()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "must be an object, true or false"),
        ({"type": "nope"}, "not a valid JSON Schema"),
        ({"properties": {"a": {"minimum": "x"}}}, "at /properties/a/minimum"),
        ({"x": object()}, "not JSON"),
        (object(), "cannot be converted to a JSON Schema"),
        ({"x": "y" * 300_000}, "characters"),
        ("[" * 100_000, "nested too deeply"),
        ({"minimum": float("nan")}, "not JSON"),
        ({"pattern": "(?<a>b"}, "at /pattern"),
        ({"$schema": []}, "not a valid JSON Schema"),
        ("", "not JSON"),
        ({"$ref": "#/$defs/none"}, "which it does not contain"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, "geminids fetches nothing"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "refers to itself"),
    ],
)
def test_a_schema_that_is_wrong_is_refused(given: Any, words: str) -> None:
    """Before the run, with the place."""
    with pytest.raises(OptionsError, match=words):
        geminids.open_run("hi", schema=given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        True,
        {"type": "object", "properties": {"more": {"type": "array", "items": {"$ref": "#"}}}},
        {"$id": "https://example.com/a", "$ref": "b", "$defs": {"b": {"$id": "b", "type": "integer"}}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"enum": [{"$ref": "http://127.0.0.1:9/x"}]},
        {"properties": {"$ref": {"type": "string"}}},
    ],
)
def test_a_schema_that_is_right_is_taken(given: Any) -> None:
    """One that refers to itself, to its own parts, to a draft; one that only looks like a reference; an empty one."""
    run = geminids.open_run("hi", schema=given)
    assert json.loads(run.options.schema or "") == given


def test_an_at_sign_puts_no_file_in() -> None:
    """The CLI would read the file that stands behind it; as JSON it is the same."""
    schema = answer_schema_of({"properties": {"@type": {"pattern": "^\\\\@a@b$"}}})
    told = schema.instruction()
    assert "@" not in told
    assert json.loads(told.rpartition("```json")[2].rstrip("`\n")) == schema.schema


@pytest.mark.parametrize(
    ("kind", "plain", "value"),
    [
        (int, 3, 3),
        (Literal["a", "b"], "a", "a"),
        (int | None, None, None),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (datetime.date, "2026-11-16", datetime.date(2026, 11, 16)),
        (set[int], [1, 2], {1, 2}),
    ],
)
def test_any_type(kind: Any, plain: Any, value: Any) -> None:
    """Not only records: whatever JSON can stand for."""
    assert answer_schema_of(kind).value_of(plain) == value


def test_a_strict_model_takes_what_json_has() -> None:
    """A date is a text there."""

    class Strict(pydantic.BaseModel, strict=True):
        day: datetime.date

    assert answer_schema_of(Strict).value_of({"day": "2026-11-16"}).day == datetime.date(2026, 11, 16)


def test_a_schema_of_the_call_goes_before_that_of_the_options() -> None:
    """None takes it away."""
    options = geminids.Options(schema='{"type": "integer"}')
    assert geminids.open_run("hi", options).options.schema == '{"type": "integer"}'
    assert geminids.open_run("hi", options, schema={}).options.schema == "{}"
    assert geminids.open_run("hi", options, schema=None).options.schema is None


def test_the_types_are_known_before_the_run(stand_in: Any) -> None:
    """mypy knows what `value` is where a class was given, and leaves it open elsewhere."""
    body = """out(INIT + say('{"name": "x"}') + DONE)"""
    result = geminids.ask_sync("hi", stand_in(body), schema=Data)
    assert_type(result, geminids.Result[Data])
    assert_type(result.raise_for_failure().value, Data)
    assert result.value == Data("x")
    plain = geminids.ask_sync("hi", stand_in(body), schema={"type": "object"})
    assert_type(plain.value, Any)
    assert plain.value == {"name": "x"}
    assert_type(geminids.ask_sync("", schema=list[Struct]).value, list[Struct])
