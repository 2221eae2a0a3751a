"""Tests of script files: accepted formats, and errors for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geminids.errors import ScriptError
from geminids.gateway import Reply, Script, load_script
from geminids.gateway.script.load import read_script


@pytest.mark.parametrize(
    "data",
    [
        b'[{"text": "one"}, {"text": "two"}]',
        b'{"replies": [{"text": "one"}, {"text": "two"}]}',
        b'{"text": "one"}\n\n{"text": "two"}\n',
        b'\xef\xbb\xbf[\n {"text": "one"},\n {"text": "two"}\n]\n',
    ],
    ids=["array", "object", "lines", "byte order mark"],
)
def test_formats_of_a_script_file(data: bytes) -> None:
    """A script may be an array, an object with `replies`, or JSON Lines.
    All have the same meaning."""
    assert read_script(data) == Script((Reply(text="one"), Reply(text="two")))


def test_single_reply() -> None:
    """A file with one reply object on one line is read as JSON Lines."""
    assert read_script(b'{"text": "one"}').replies == (Reply(text="one"),)


def test_default_reply_has_no_limit() -> None:
    """The `default` reply of a file is used any number of times."""
    script = read_script(b'{"default": {"text": "no more"}}')
    assert script == Script((), Reply(text="no more", times=None))


def test_every_field_of_a_reply() -> None:
    """A script file accepts every field of `Reply`."""
    data = b"""[{"text": ["a", "b"], "thought": "t", "calls": [{"name": "x", "args": {"a": 1}, "id": "7"}],
      "raw": [{}], "garbage": "g", "empty": true, "blocked": "SAFETY", "finish": "MAX_TOKENS",
      "usage": {"input": 1, "output": 2, "cached": 3, "thinking": 4, "tool": 5, "total": 6},
      "model_version": "m", "status": 429, "error": "e", "error_status": "X", "details": [{"a": 1}],
      "headers": {"retry-after": "1"}, "delay": 0.5, "pause": 1, "stall": true, "cut": false,
      "when": "a|b", "method": "any", "times": null}]"""
    reply = read_script(data).replies[0]
    assert set(json.loads(data)[0]) == set(Reply.__struct_encode_fields__)
    assert (reply.calls[0].id, reply.usage and reply.usage.total, reply.times) == ("7", 6, None)


@pytest.mark.parametrize(
    ("data", "line", "problem"),
    [
        (b'[\n {"text": "a"},\n {"txt": "b"}\n]', 3, "reply 2: Object contains unknown field `txt`"),
        (b'{"text": "a"}\n\n{"text": 5}\n', 3, "reply 2: Expected"),
        (b'{"text": "a"}\n{"text": "b"\n', 2, "truncated"),
        (b'[\n {"text": "a"}\n {"text": "b"}\n]', 3, "malformed"),
        (b'[{"text": "a"},\n {"text": "a"', 2, "truncated"),
        (b'[\n{"when": "("}]', 2, "`when` is not a valid regular expression"),
        (b'[{"status": 99}]', 1, "`status` must be from 200 to 599"),
        (b'[{"times": 0}]', 1, "`times` must be 1 or more"),
        (b'[{"delay": -1}]', 1, "`delay` and `pause`"),
        (b'[{"stall": true, "cut": true}]', 1, "`stall` or `cut`, not both"),
        (b'{"replies": [],\n "defualt": {}}', 1, "unknown field `defualt`"),
        (b'{"replies": [],\n "default": {"text": 1}}', 2, "default: Expected"),
        (b"5", 1, "Expected"),
        (b'[{"text": "\xff"}]', 1, "utf-8"),
    ],
)
def test_error_names_file_and_line(data: bytes, line: int, problem: str) -> None:
    """Bad input raises one error that contains the file, the line and the problem."""
    with pytest.raises(ScriptError) as caught:
        read_script(data, "answers.json")
    assert caught.value.where == f"answers.json:{line}"
    assert problem in str(caught.value)


def test_empty_file(tmp_path: Path) -> None:
    """A script file without a reply raises an error."""
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ScriptError, match="no replies"):
        load_script(tmp_path / "empty.jsonl")


def test_missing_file(tmp_path: Path) -> None:
    """A missing script file raises a ScriptError that contains its name."""
    with pytest.raises(ScriptError, match=r"gone\.json: No such file"):
        load_script(tmp_path / "gone.json")
