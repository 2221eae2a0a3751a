"""Tests of `checked`: it finds the JSON value in an answer, validates it, and reports the
problems."""

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
def test_json_is_found(text: str) -> None:
    """JSON is found alone, in fenced blocks, in prose, and among other blocks."""
    result = checked(text, SCHEMA)
    assert (result.found, result.value) == (True, {"a": 1})


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
def test_a_problem_gives_its_position(text: str, problem: str) -> None:
    """A problem gives the position of a syntax error, or the path of the value that breaks the
    schema."""
    result = checked(text, SCHEMA)
    assert not result.found
    assert result.problems == (problem,)


def test_the_last_block_is_the_answer() -> None:
    """If an answer has several JSON blocks, the last one counts, because models correct
    themselves."""
    assert next(iter(candidates("```json\n1\n```\n```json\n2\n```"))) == 2


def test_nested_references() -> None:
    """A `$ref` inside a definition is followed to another definition."""
    schema = {
        "$ref": "#/$defs/list",
        "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/item"}}, "item": SCHEMA},
    }
    assert checked('[{"a": 1}, {"a": 2}]', schema).found
    assert checked('[{"a": 1}, {"a": "x"}]', schema).problems == ("/1/a: 'x' is not of type 'integer'",)


def test_a_missing_definition_is_reported() -> None:
    """A `$ref` to a missing definition is reported as a problem of the schema; it does not
    raise."""
    (problem,) = checked("{}", {"$ref": "#/$defs/none"}).problems
    assert "the schema cannot be used" in problem


@pytest.mark.parametrize(
    "text",
    ["{ ", '{"', '{"a":', "[", "[NaN] ", "[1] ", "~~~a\n", "```a\n", "```\n", '{"a":[NaN,', "\\", "`"],
)
def test_the_search_takes_linear_time(text: str) -> None:
    """A megabyte of unfinished values and blocks is searched in a few seconds."""
    start = time.process_time()
    assert not checked(text * (1_000_000 // len(text)), SCHEMA).found
    assert time.process_time() - start < 5


def test_a_huge_value() -> None:
    """A value of ten megabytes in prose is found."""
    start = time.process_time()
    big = json.dumps({"a": 1, "list": list(range(1_400_000))})
    assert checked(f"Here: {big}", SCHEMA).found
    assert time.process_time() - start < 10


def test_open_brackets_are_searched_quickly() -> None:
    """A megabyte with 900 open brackets and no closing one is searched in a few seconds."""
    start = time.process_time()
    assert not checked("[" * 900 + "1," * 500_000, SCHEMA).found
    assert time.process_time() - start < 10


def test_a_json_block_counts_before_other_blocks() -> None:
    """A block that is marked as JSON counts before a later block of another kind, such as a
    program's output."""
    assert checked(f"```json\n{GOOD}\n```\n```text\n42\n```", True).value == {"a": 1}


def test_big_numbers() -> None:
    """Integers of any practical size are kept; a number that Python cannot parse is reported."""
    assert checked(f"[{10**30}]", True).value == [10**30]
    (problem,) = checked(f"[{'9' * 5000}]", True).problems
    assert "its JSON cannot be parsed" in problem


def test_problem_messages_are_short_and_complete() -> None:
    """A problem message shortens long values and keys, but never the error itself, and the total
    size stays small."""
    schema = {"additionalProperties": {"type": "integer"}}
    (problem,) = checked(json.dumps({"k" * 10_000: "v" * 10_000}), schema).problems
    assert problem.endswith("is not of type 'integer'")
    assert len(problem) < 1000
    many = checked(json.dumps(["v" * 10_000] * 1000), {"items": {"type": "integer"}}).problems
    assert sum(map(len, many)) < 20_000


def test_the_nearest_alternative_is_reported() -> None:
    """If no alternative of `anyOf` matches, the last problem comes from the alternative that is
    nearest to the value."""
    schema = {"anyOf": [{"type": "null"}, SCHEMA]}
    problems = checked('{"a": "x"}', schema).problems
    assert problems[-1] == "/a: 'x' is not of type 'integer'"


def test_nothing_is_fetched() -> None:
    """A `$ref` to a server sends no request."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.3)
    with listener:
        (problem,) = checked("3", {"$ref": f"http://127.0.0.1:{listener.getsockname()[1]}/x"}).problems
        assert "the schema cannot be used" in problem
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07"])
def test_older_drafts(draft: str) -> None:
    """A schema is checked by the draft that it names."""
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
def test_any_value_in_a_fenced_block_is_read_back(value: Any) -> None:
    """Any JSON value in a fenced block is read back unchanged."""
    text = f"Well:\n```json\n{json.dumps(value)}\n```\nDone."
    assert checked(text, True).value == value


@given(st.text())
def test_no_text_raises(text: str) -> None:
    """No text makes `checked` raise an exception."""
    checked(text, SCHEMA)
