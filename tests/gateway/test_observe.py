"""Whose request it is, by what it asks."""

from __future__ import annotations

import json

import pytest

from geminids.gateway.observe import role_of

_DONE = {"tools": [{"functionDeclarations": [{"name": "glob"}, {"name": "complete_task"}]}]}
_GREP = {"parts": [{"functionCall": {"name": "grep_search", "args": {"pattern": "complete_task"}}}]}


@pytest.mark.parametrize(
    ("asked", "role"),
    [
        ({"contents": [_GREP], **_DONE}, "subagent"),
        ({"contents": [_GREP], "tools": [{"functionDeclarations": [{"name": "glob"}]}]}, "main"),
        ({"contents": [_GREP], "tools": [{"googleSearch": {}}]}, "main"),
        ({"contents": [{"parts": [{"text": "complete_task"}]}]}, "main"),
    ],
    ids=["declared", "looked for", "no functions", "said"],
)
def test_a_subagent_has_the_tool_and_not_the_word(asked: object, role: str) -> None:
    """An agent that works on a program in which the word stands is still the main one."""
    assert role_of("stream", json.dumps(asked).encode()) == role
