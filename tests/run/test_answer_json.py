"""The JSON value in an answer: found wherever it stands, and what is wrong with it."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.run.schema.answer_json import candidates, checked

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
GOOD = '{"a": 1}'
_UNQUOTED = "its JSON cannot be parsed: Expecting property name enclosed in double quotes (line 1, column 2)"


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
        f"\ufeff{GOOD}",
        f"```json\r\n{GOOD}\r\n```\r\n",
        f"````markdown\n```json\n{GOOD}\n```\n````",
        f"```json\n{GOOD}",
        f"```JSON\n{GOOD}\n`````",
        '{"a": 0, "a": 1}',
        "{ " * 5000 + GOOD,
        f"[see there] {{so}} [1, and {GOOD}",
    ],
)
def test_it_is_found(text: str) -> None:
    """Alone, in fences, in prose, among others."""
    found = checked(text, SCHEMA)
    assert (found.found, found.value) == (True, {"a": 1})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I have none.", "it contains no JSON"),
        ('{"a": "x"}', "/a: 'x' is not of type 'integer'"),
        ("{}", "/: 'a' is a required property"),
        ('{"a": 1', "its JSON cannot be parsed: Expecting ',' delimiter (line 1, column 8)"),
        ("```json\n{'a': 1}\n```", _UNQUOTED),
        ('{"a": NaN}', "its JSON cannot be parsed: NaN is not JSON"),
        ('{"a": 1e999}', "its JSON cannot be parsed: 1e999 is not JSON"),
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


@pytest.mark.parametrize(
    "text",
    ["{ ", '{"', '{"a":', "[", "[NaN] ", "[1] ", "~~~a\n", "```a\n", "```\n", '{"a":[NaN,', "\\", "`"],
)
def test_nothing_takes_more_than_linear_time(text: str) -> None:
    """A megabyte of what begins values and blocks, and ends none."""
    began = time.perf_counter()
    assert not checked(text * (1_000_000 // len(text)), SCHEMA).found
    assert time.perf_counter() - began < 5


def test_a_huge_value() -> None:
    """Ten megabytes, in prose."""
    began = time.perf_counter()
    big = json.dumps({"a": 1, "list": list(range(1_400_000))})
    assert checked(f"Here: {big}", SCHEMA).found
    assert time.perf_counter() - began < 10


def test_a_deep_one_that_is_never_closed() -> None:
    """Each of its brackets could begin a value, and none does."""
    began = time.perf_counter()
    assert not checked("[" * 900 + "1," * 500_000, SCHEMA).found
    assert time.perf_counter() - began < 10


def test_a_block_of_another_kind_is_no_answer_where_there_is_one() -> None:
    """What a program printed stands behind the JSON, and would be valid too."""
    assert checked(f"```json\n{GOOD}\n```\n```text\n42\n```", True).value == {"a": 1}


def test_big_numbers() -> None:
    """Whole ones have no end; what Python does not read is said."""
    assert checked(f"[{10**30}]", True).value == [10**30]
    (problem,) = checked(f"[{'9' * 5000}]", True).problems
    assert "its JSON cannot be parsed" in problem


def test_what_is_wrong_is_never_cut_off() -> None:
    """The value is shortened, not what is wrong with it; and all of it stays small."""
    schema = {"additionalProperties": {"type": "integer"}}
    (problem,) = checked(json.dumps({"k" * 10_000: "v" * 10_000}), schema).problems
    assert problem.endswith("is not of type 'integer'")
    assert len(problem) < 1000
    many = checked(json.dumps(["v" * 10_000] * 1000), {"items": {"type": "integer"}}).problems
    assert sum(map(len, many)) < 20_000


def test_of_several_forms_the_nearest_is_told() -> None:
    """ "Not valid under any of the given schemas" helps nobody."""
    schema = {"anyOf": [{"type": "null"}, SCHEMA]}
    problems = checked('{"a": "x"}', schema).problems
    assert problems[-1] == "/a: 'x' is not of type 'integer'"


def test_nothing_is_fetched() -> None:
    """A `$ref` to a server asks no server."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.3)
    with listener:
        (problem,) = checked("3", {"$ref": f"http://127.0.0.1:{listener.getsockname()[1]}/x"}).problems
        assert "the schema cannot be used" in problem
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07"])
def test_older_drafts(draft: str) -> None:
    """As they name themselves."""
    schema = {
        "$schema": f"http://json-schema.org/{draft}/schema#",
        "definitions": {"one": SCHEMA},
        "items": {"$ref": "#/definitions/one"},
    }
    assert checked(f"[{GOOD}]", schema).found
    assert not checked('[{"a": "x"}]', schema).found


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
