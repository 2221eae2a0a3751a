"""The name in a SKILL.md as the CLI reads it, and whether we are sure of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from geminids.gemini.skills.file import SkillHead, head_of, read_skill


def _file(head: str) -> str:
    return f"---\n{head}\n---\nbody\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (_file("name: a:b\ndescription: d"), "a-b"),
        (_file("name: a\ndescription: x: y"), "a"),
        ("---\nname: a\ndescription: d\n---", "a"),
        (_file("name: 12\ndescription: d"), "12"),
    ],
)
def test_the_name_of_a_skill(text: str, name: str) -> None:
    """Odd characters of a name become `-`.

    A head that is not YAML is read line by line, and it may end the file.
    """
    assert (head_of(text).name, head_of(text).why) == (name, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no front matter"),
        ("# x", "it has no front matter"),
        ("\ufeff" + _file("name: a\ndescription: d"), "it has no front matter"),
        ("---\nname: a\ndescription: d\n", "its front matter is not closed"),
        (_file("name: a"), "it has no name or no description"),
    ],
)
def test_why_a_file_is_ignored(text: str, why: str) -> None:
    """`why` says why the CLI ignores a file."""
    assert head_of(text).why == why


@pytest.mark.parametrize(
    "head",
    [
        "name: !!str evil\ndescription: d",
        "? name\n: evil\n? description\n: d",
        '"na\\x6de": evil\ndescription: d',
        "name: decoy\n  evil\ndescription: d",
        "{name: evil, description: d}",
        "x: &a\n  name: evil\n<<: *a\ndescription: d",
        "name: decoy\nname: evil\ndescription: d",
        "name: 'quoted'\ndescription: d",
    ],
)
def test_odd_names_are_not_sure(head: str) -> None:
    """If YAML parsers may read different names, `sure` is false."""
    assert not head_of(_file(head)).sure


@pytest.mark.parametrize(
    "head", ["name: a\ndescription: d", "name: my-skill\ndescription: |\n  x: y\nlicense: MIT"]
)
def test_usual_names_are_sure(head: str) -> None:
    """For an unquoted name on its own line, `sure` is true."""
    assert head_of(_file(head)).sure


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    """A FIFO is not opened, so reading does not block."""
    os.mkfifo(tmp_path / "SKILL.md")
    assert read_skill(str(tmp_path / "SKILL.md")) == SkillHead(why="it is not a regular file")


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    """A huge file is read only in part, and `sure` is false."""
    file = tmp_path / "SKILL.md"
    file.write_text(_file("name: a\ndescription: d") + "x" * 2_000_000)
    assert read_skill(str(file)) == SkillHead(name="a", description="d", sure=False)
