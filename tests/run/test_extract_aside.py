"""A schema with patterns is checked aside, and in time."""

from __future__ import annotations

import os
import time

import pytest

from geminids.process.tree import marked
from geminids.run.extract import checked
from geminids.run.extract_aside import checked_in_time

SLOW = {"type": "string", "pattern": "^(a+)+$"}


@pytest.mark.parametrize("text", ['"aaa"', '"b"', "3", "no", '"a\\ud800"', '```json\n"aaa"\n```'])
def test_the_same_is_found(text: str) -> None:
    """Whoever looks, also where half a character is in it."""
    assert checked_in_time(text, SLOW) == checked(text, SLOW)


def test_a_pattern_that_takes_for_ever() -> None:
    """Is given up, as a problem of the answer, and nothing goes on."""
    began = time.monotonic()
    (problem,) = checked_in_time(f'"{"a" * 50}!"', SLOW, 1.0).problems
    assert problem == "the answer could not be checked by the schema: its patterns took longer than 1 s"
    assert time.monotonic() - began < 5
    assert marked(os.environ["GEMINI_CLI_GEMINIDS_MARK"]) == []


def test_others_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most schemas have no pattern."""
    monkeypatch.setattr("sys.executable", "/repo/none")
    assert checked_in_time("3", {"type": "integer"}).value == 3
    (problem,) = checked_in_time('"a"', SLOW).problems
    assert "could not be checked" in problem
