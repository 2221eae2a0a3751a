"""The JSON value in an answer: found wherever it stands, and what is wrong with it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.run.extract import candidates, checked

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
GOOD = '{"a": 1}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"~~~json\n{GOOD}\n~~~",
        f"Here it is:\n\n```json\n{GOOD}\n```\nI hope that helps.",
        f"The value is {GOOD}, as you asked.",
        f'First {{"b": 2}}, then {GOOD}.',
        f'```json\n{{"a": "no"}}\n```\nNo, rather:\n```json\n{GOOD}\n```',
        f"```python\nx = {{1, 2}}\n```\n{GOOD}",
        f"```json\n{GOOD}\n```\n```text\nnot json\n```",
    ],
)
def test_it_is_found(text: str) -> None:
    """Alone, in fences, in prose, among others."""
    found = checked(text, SCHEMA)
    assert (found.found, found.value) == (True, {"a": 1})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I have none.", "there is no JSON in it"),
        ('{"a": "x"}', "/a: 'x' is not of type 'integer'"),
        ("{}", "/: 'a' is a required property"),
        ('{"a": 1', "there is no JSON in it"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, problem: str) -> None:
    """The model is told the exact error."""
    found = checked(text, SCHEMA)
    assert not found.found
    assert found.problems == (problem,)


def test_the_last_block_is_the_answer() -> None:
    """A model that corrects itself means what it said last."""
    assert next(iter(candidates("```json\n1\n```\n```json\n2\n```"))) == 2


def test_nested_references() -> None:
    """`$ref` within `$defs` within `$defs`."""
    schema = {
        "$ref": "#/$defs/list",
        "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/item"}}, "item": SCHEMA},
    }
    assert checked('[{"a": 1}, {"a": 2}]', schema).found
    assert checked('[{"a": 1}, {"a": "x"}]', schema).problems == ("/1/a: 'x' is not of type 'integer'",)


def test_a_schema_that_cannot_be_used_is_a_problem_and_no_crash() -> None:
    """A reference that leads nowhere is found out only when it is followed."""
    (problem,) = checked("{}", {"$ref": "#/$defs/none"}).problems
    assert "the schema cannot be used" in problem


def test_a_huge_answer_takes_linear_time() -> None:
    """Megabytes of braces that begin nothing, and a valid value of megabytes."""
    began = time.perf_counter()
    assert not checked("{ " * 500_000, SCHEMA).found
    big = json.dumps({"a": 1, "list": list(range(300_000))})
    assert checked(f"Here: {big}", SCHEMA).found
    assert time.perf_counter() - began < 10


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_every_value_survives_a_fence(value: Any) -> None:
    """What is written into a block is read back."""
    text = f"Well:\n```json\n{json.dumps(value)}\n```\nDone."
    assert checked(text, True).value == value


@given(st.text())
def test_nothing_raises(text: str) -> None:
    """Whatever the model says."""
    checked(text, SCHEMA)
