"""Lint: one rule a row, with file and line, and silence where nothing is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from geminids.errors import GeminidsError
from geminids.gemini.skills.lint import RULES, Finding, lint_skill
from geminids.gemini.skills.places import lint_path

ROOT = Path(__file__).parents[3]
LONG = "x" * 1025


def _lint(folder: Path, data: str | bytes) -> list[Finding]:
    folder.mkdir(exist_ok=True)
    (folder / "SKILL.md").write_bytes(data if isinstance(data, bytes) else data.encode())
    return lint_skill(str(folder / "SKILL.md"))


def test_a_good_skill_has_no_findings(tmp_path: Path) -> None:
    """Nothing is said of a skill as the standard describes it, with scripts, links and further fields."""
    folder = tmp_path / "good-1"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts/go.sh").write_text("true")
    (folder / "link").symlink_to("scripts/go.sh")
    text = "---\nname: good-1\ndescription: 'Does: good.'\nlicense: MIT\nmetadata:\n  author: me\n---\n"
    text += "Run scripts/go.sh, see [it](./scripts/go.sh) and [there](https://example.org/scripts/x.sh).\n"
    assert _lint(folder, text) == []


@pytest.mark.parametrize(
    ("data", "code", "line", "unseen"),
    [
        (b"\xef\xbb\xbf---\nname: it\ndescription: d\n---\n", "byte-order-mark", 1, True),
        (b"---\nname: it\ndescription: caf\xe9\n---\n", "not-utf8", 3, False),
        ("# Text\n", "no-front-matter", 1, True),
        ("---\nname: it\n", "not-closed", 1, True),
        ("---\ndescription: d\n---\n", "no-name", 1, True),
        ("---\nname: it\n---\n", "no-description", 1, True),
        ("---\nname: it\ndescription: ''\n---\n", "no-description", 3, False),
        ("---\nname: it\ndescription: a: b\n---\n", "not-yaml", 2, False),
        ("---\nlicense: x\nname: It\ndescription: d\n---\n", "name-characters", 3, False),
        ("---\nname: a--b\ndescription: d\n---\n", "name-characters", 2, False),
        (f"---\nname: {'x' * 65}\ndescription: d\n---\n", "name-too-long", 2, False),
        ("---\nname: other\ndescription: d\n---\n", "name-not-folder", 2, False),
        (f"---\nname: it\ndescription: {LONG}\n---\n", "description-too-long", 3, False),
        ("---\nname: it\ndescription: d\n---\n\nRun `scripts/gone.py`.\n", "missing-file", 6, False),
        ("---\nname: it\ndescription: d\n---\nSee [this](docs/gone.md).\n", "missing-file", 5, False),
    ],
)
def test_findings(tmp_path: Path, data: str | bytes, code: str, line: int, unseen: bool) -> None:
    """Each rule is told with its line, and with its level."""
    found = {one.code: one for one in _lint(tmp_path / "it", data)}
    assert code in found
    assert (found[code].line, found[code].unseen, found[code].level) == (line, unseen, RULES[code][0])


def test_links_that_lead_away(tmp_path: Path) -> None:
    """A link out of the folder is told, an absolute one too, though it leads inside."""
    folder = tmp_path / "it"
    folder.mkdir()
    (folder / "out").symlink_to("../secret")
    (folder / "root").symlink_to(folder / "SKILL.md")
    found = _lint(folder, "---\nname: it\ndescription: d\n---\n")
    assert [(one.code, os.path.basename(one.file)) for one in found] == [
        ("link-outside", "out"),
        ("link-outside", "root"),
    ]


def test_what_is_no_file(tmp_path: Path) -> None:
    """A SKILL.md that is a folder, a dead link or a pipe is told, and not waited for."""
    for name in ("folder", "dead", "pipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder/SKILL.md").mkdir()
    (tmp_path / "dead/SKILL.md").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe/SKILL.md")
    found = lint_path(str(tmp_path))
    assert [one.code for one in found if one.unseen] == ["unreadable"] * 3


def test_a_folder_of_skills(tmp_path: Path) -> None:
    """What the CLI passes over in a folder of skills is told, each with its reason."""
    good = "---\nname: {}\ndescription: d\n---\n"
    files = {
        "fine/SKILL.md": "fine",
        "lower/skill.md": "lower",
        ".hidden/SKILL.md": "hidden",
        "node_modules/SKILL.md": "modules",
        "outer/inner/SKILL.md": "inner",
        "nothing/README.md": "nothing",
        "a/SKILL.md": "b",
        "b/SKILL.md": "b",
    }
    for name, called in files.items():
        (tmp_path / "skills" / name).parent.mkdir(parents=True)
        (tmp_path / "skills" / name).write_text(good.format(called))
    found = lint_path(str(tmp_path / "skills"))
    told = {
        os.path.relpath(one.file, tmp_path / "skills"): one.code
        for one in found
        if one.code != "name-not-folder"
    }
    assert told == {
        "lower/skill.md": "wrong-case",
        ".hidden/SKILL.md": "hidden-folder",
        "node_modules/SKILL.md": "passed-over-folder",
        "outer/inner/SKILL.md": "too-deep",
        "nothing": "no-skill-file",
        "b/SKILL.md": "shadowed",
    }


def test_paths(tmp_path: Path) -> None:
    """A file, a skill, a folder of skills and a workspace are each known for what they are; all else is refused."""
    folder = tmp_path / "work/.agents/skills/it"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("# Text\n")
    for path in (folder / "SKILL.md", folder, folder.parent, tmp_path / "work"):
        assert [one.code for one in lint_path(str(path))] == ["no-front-matter"]
    (tmp_path / "notes.md").write_text("x")
    for path in (tmp_path / "notes.md", tmp_path / "gone"):
        with pytest.raises(GeminidsError, match=r"Give a SKILL\.md"):
            lint_path(str(path))


def test_every_rule_is_explained() -> None:
    """docs/reference/skills.md has a row for each rule, with its level and its sentence."""
    page = (ROOT / "docs/reference/skills.md").read_text()
    rows = [f"| `{code}` | {level} | {what} |" for code, (level, what) in RULES.items()]
    assert [row for row in rows if row not in page] == []
