"""The form of an answer: schemas and types, checked before anything is started."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest

import geminids
from geminids import OptionsError
from geminids.run.wanted import wanted_of


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
    wanted = wanted_of(kind)
    assert '"name"' in wanted.text
    value = wanted.value_of({"name": "x", "age": 3})
    assert isinstance(value, kind)
    assert (value.name, value.age) == ("x", 3)
    with pytest.raises(ValueError):
        wanted.value_of({"name": 1})


@pytest.mark.parametrize("kind", [Struct, Data, Model])
def test_lists_of_them(kind: Any) -> None:
    """Whatever a type is made of."""
    (value,) = wanted_of(list[kind]).value_of([{"name": "x"}])
    assert isinstance(value, kind)


def test_a_schema_gives_plain_values() -> None:
    """As text or as a mapping; and the model is told it."""
    for given in ('{"type": "integer"}', {"type": "integer"}):
        wanted = wanted_of(given)
        assert wanted.value_of(3) == 3
        assert '{"type": "integer"}' in wanted.instruction()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "neither an object"),
        ({"type": "nope"}, "no valid JSON Schema"),
        ({"properties": {"a": {"minimum": "x"}}}, "at /properties/a/minimum"),
        ({"x": object()}, "not JSON"),
        (object(), "no JSON Schema can be made"),
        ({"x": "y" * 300_000}, "characters"),
    ],
)
def test_a_schema_that_is_wrong_is_refused(given: Any, words: str) -> None:
    """Before the run, with the place."""
    with pytest.raises(OptionsError, match=words):
        geminids.open_run("hi", schema=given)
