"""Tests of answer schemas: JSON Schemas and Python types, which are checked before a run starts."""

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
def test_types_become_schemas_and_answers_become_instances(kind: Any) -> None:
    """A msgspec struct, a dataclass and a pydantic model become a schema; a valid answer becomes an
    instance."""
    schema = answer_schema_of(kind)
    assert '"name"' in schema.text
    value = schema.value_of({"name": "x", "age": 3})
    assert isinstance(value, kind)
    assert (value.name, value.age) == ("x", 3)
    with pytest.raises(ValueError):
        schema.value_of({"name": 1})


@pytest.mark.parametrize("kind", [Struct, Data, Model])
def test_nested_types(kind: Any) -> None:
    """A type may contain other types."""
    (value,) = answer_schema_of(list[kind]).value_of([{"name": "x"}])
    assert isinstance(value, kind)


def test_a_schema_gives_plain_values() -> None:
    """A schema may be text or a mapping.

    It is part of the instruction to the model, and values stay plain.
    """
    for definition in ('{"type": "integer"}', {"type": "integer"}):
        schema = answer_schema_of(definition)
        assert schema.value_of(3) == 3
        assert '{"type": "integer"}' in schema.instruction()


@pytest.mark.parametrize(
    ("schema", "message"),
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
        ({"$ref": "#/$defs/none"}, "but does not contain that definition"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, "geminids does not download schemas"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "refers to itself"),
    ],
)
def test_an_invalid_schema_is_refused(schema: Any, message: str) -> None:
    """An invalid schema is refused before the run, and the message describes the error."""
    with pytest.raises(OptionsError, match=message):
        geminids.open_run("hi", schema=schema)


@pytest.mark.parametrize(
    "schema",
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
def test_a_valid_schema_is_accepted(schema: Any) -> None:
    """A valid schema is accepted: recursive, with references to its own parts or to a draft, or
    empty. A `$ref` inside an `enum` or as a property name is no reference."""
    run = geminids.open_run("hi", schema=schema)
    assert json.loads(run.options.schema or "") == schema


def test_an_at_sign_inserts_no_file() -> None:
    """The instruction contains no `@`, because the CLI would insert the file whose name follows.

    As JSON the schema is unchanged.
    """
    schema = answer_schema_of({"properties": {"@type": {"pattern": "^\\\\@a@b$"}}})
    instruction = schema.instruction()
    assert "@" not in instruction
    assert json.loads(instruction.rpartition("```json")[2].rstrip("`\n")) == schema.schema


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
def test_any_json_type_is_accepted(kind: Any, plain: Any, value: Any) -> None:
    """Any type that JSON can represent is accepted, and the value is converted to it."""
    assert answer_schema_of(kind).value_of(plain) == value


def test_a_strict_model_accepts_dates_as_text() -> None:
    """A strict pydantic model accepts a date as text, because JSON has no dates."""

    class Strict(pydantic.BaseModel, strict=True):
        day: datetime.date

    assert answer_schema_of(Strict).value_of({"day": "2026-11-16"}).day == datetime.date(2026, 11, 16)


def test_the_schema_argument_replaces_that_of_the_options() -> None:
    """The `schema` argument replaces the schema of the options; None removes it."""
    options = geminids.Options(schema='{"type": "integer"}')
    assert geminids.open_run("hi", options).options.schema == '{"type": "integer"}'
    assert geminids.open_run("hi", options, schema={}).options.schema == "{}"
    assert geminids.open_run("hi", options, schema=None).options.schema is None


def test_mypy_infers_the_type_of_value(fake_cli: Any) -> None:
    """mypy infers the type of `value` from a type; for a JSON Schema it is `Any`."""
    body = """out(INIT + say('{"name": "x"}') + DONE)"""
    result = geminids.ask_sync("hi", fake_cli(body), schema=Data)
    assert_type(result, geminids.Result[Data])
    assert_type(result.raise_for_failure().value, Data)
    assert result.value == Data("x")
    plain = geminids.ask_sync("hi", fake_cli(body), schema={"type": "object"})
    assert_type(plain.value, Any)
    assert plain.value == {"name": "x"}
    assert_type(geminids.ask_sync("", schema=list[Struct]).value, list[Struct])
