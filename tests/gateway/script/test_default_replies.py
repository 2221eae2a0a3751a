"""Tests of the JSON answers that a script gives to utility requests of the CLI."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.gateway.script.scripted_upstream import fill


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "enum": ["model", "user"]}, "user"),
        ({"type": "string", "enum": ["b", "a"]}, "b"),
        ({"const": 7}, 7),
        ({"anyOf": [{"type": "boolean"}, {"type": "string"}]}, False),
        ({"type": ["number", "null"]}, 0),
        ({"type": "INTEGER", "minimum": 5}, 5),
        ({"type": "array", "items": {"type": "string"}}, []),
        ({"type": "array", "items": {"type": "string"}, "minItems": 2}, ["scripted", "scripted"]),
        ({"properties": {"deep": {"properties": {"a": {"type": "string"}}}}}, {"deep": {"a": "scripted"}}),
        ({"type": "null"}, None),
        ({}, {}),
        ("no schema", None),
    ],
)
def test_fill(schema: Any, expected: Any) -> None:
    """`fill` returns the simplest value that fits the schema.
    For an enum it prefers the value that ends the turn or selects the cheap model."""
    assert fill(schema) == expected
