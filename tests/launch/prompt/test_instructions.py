"""Tests of the instructions file: its text comes before the prompt, or one clear error is raised
before the start."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.launch.errors import PromptProblem
from geminids.launch.prompt.compose import compose, instructions_text, read_instructions
from geminids.options import Options


def test_instructions_come_before_the_prompt(tmp_path: Path) -> None:
    """The instructions come first, then one empty line, then the prompt, inside the template if
    there is one."""
    file = tmp_path / "AGENT.md"
    file.write_text("# Rules\n\nBe brief.\n\n\n")
    options = Options(instructions=str(file))
    assert compose("hello", options, "run-1") == "# Rules\n\nBe brief.\n\nhello"
    with_template = Options(instructions=str(file), template="{{runId}}: {{prompt}}")
    assert compose("hello", with_template, "run-1") == "# Rules\n\nBe brief.\n\nrun-1: hello"


def test_the_callers_run_id_is_used() -> None:
    """A `runId` variable of the caller overrides the id of the run."""
    options = Options(template="{{runId}}: {{prompt}}", variables={"runId": "theirs"})
    assert compose("hello", options, "run-1") == "theirs: hello"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xef\xbb\xbfBe brief.", "Be brief."),
        (b"Ask @ops, see @a/b.md", r"Ask \@ops, see \@a/b.md"),
        (b"/help is a word", " /help is a word"),
        (b"one\r\ntwo\r\n", "one\r\ntwo"),
    ],
)
def test_instructions_are_plain_text(data: bytes, expected: str) -> None:
    """Instructions are plain text: a byte order mark is removed, `@path` and a leading `/` are
    escaped, and the rest stays."""
    assert instructions_text(data, "AGENT.md") == expected


def test_the_prompt_keeps_its_paths(tmp_path: Path) -> None:
    """`@path` in the prompt is not escaped when there are instructions."""
    file = tmp_path / "AGENT.md"
    file.write_text("See @a.md")
    assert compose("and @b.md", Options(instructions=str(file)), "") == "See \\@a.md\n\nand @b.md"


def test_literal_applies_to_template_and_instructions(tmp_path: Path) -> None:
    """`literal` escapes prompt, template and variables, and no `@` is escaped twice."""
    file = tmp_path / "AGENT.md"
    file.write_text("See @a.md")
    options = Options(
        instructions=str(file), template="@b {{x}} {{prompt}}", variables={"x": "@c"}, literal=True
    )
    assert compose("@d", options, "") == "See \\@a.md\n\n\\@b \\@c \\@d"


def test_an_empty_prompt_needs_a_template(tmp_path: Path) -> None:
    """An empty prompt with instructions is refused, unless there is a template."""
    file = tmp_path / "AGENT.md"
    file.write_text("Be brief.")
    with pytest.raises(PromptProblem, match="empty"):
        compose(" ", Options(instructions=str(file)), "")
    assert compose("", Options(instructions=str(file), template="Tidy up."), "") == "Be brief.\n\nTidy up."


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"a\nb\xff", "is not UTF-8: line 2, byte 4 of the file"),
        (b"a\0b", "NUL"),
        (b"\xff\xfea\0", "is not UTF-8: line 1, byte 1"),
    ],
)
def test_invalid_text_is_reported_with_its_position(tmp_path: Path, data: bytes, message: str) -> None:
    """An instructions file that is empty, not UTF-8, or contains NUL is refused; an encoding error
    gives its position."""
    file = tmp_path / "AGENT.md"
    file.write_bytes(data)
    with pytest.raises(PromptProblem, match=message) as caught:
        read_instructions(str(file))
    assert str(caught.value).startswith(f"`instructions`: {file} ")
    assert caught.value.kind == "bad_option"


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    """A missing file, a folder, a FIFO (without waiting for a writer) and a file that is too large
    are refused."""
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "big").open("wb") as big:
        big.truncate(50_000_000)
    for name, message in [
        ("missing", "cannot be read: No such file"),
        (".", "is a folder"),
        ("fifo", "is not a regular file"),
        ("big", "has 50,000,000 bytes; at most 8,388,608"),
        ("x\0y", "cannot be read"),
    ]:
        with pytest.raises(PromptProblem, match=message):
            read_instructions(str(tmp_path / name))


@given(st.binary(max_size=60))
def test_any_bytes_are_text_or_a_problem(data: bytes) -> None:
    """Any bytes give a text or a `PromptProblem`, and no other exception."""
    with contextlib.suppress(PromptProblem):
        assert instructions_text(data, "AGENT.md").strip()
