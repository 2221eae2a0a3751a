"""The rules of `lint`: each finding has a file and a line, and a good skill has none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from geminids.errors import GeminidsError
from geminids.gemini.skills.lint import RULES, LintFinding, lint_skill
from geminids.gemini.skills.lint_path import lint_path

ROOT = Path(__file__).parents[3]
LONG = "x" * 1025


def _lint(folder: Path, data: str | bytes) -> list[LintFinding]:
    folder.mkdir(exist_ok=True)
    (folder / "SKILL.md").write_bytes(data if isinstance(data, bytes) else data.encode())
    return lint_skill(str(folder / "SKILL.md"))


def test_a_good_skill_has_no_findings(tmp_path: Path) -> None:
    """A skill that follows the standard has no findings, also with scripts, links and more fields."""
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
    """Each rule is reported with its line and level, and whether the CLI does not see the skill."""
    findings = {finding.code: finding for finding in _lint(tmp_path / "it", data)}
    assert code in findings
    assert (findings[code].line, findings[code].unseen, findings[code].level) == (
        line,
        unseen,
        RULES[code][0],
    )


def test_links_out_of_the_folder(tmp_path: Path) -> None:
    """A link out of the folder is reported, and so is an absolute link."""
    folder = tmp_path / "it"
    folder.mkdir()
    (folder / "out").symlink_to("../secret")
    (folder / "root").symlink_to(folder / "SKILL.md")
    findings = _lint(folder, "---\nname: it\ndescription: d\n---\n")
    assert [(finding.code, os.path.basename(finding.file)) for finding in findings] == [
        ("link-outside", "out"),
        ("link-outside", "root"),
    ]


def test_a_skill_file_that_is_no_file(tmp_path: Path) -> None:
    """A SKILL.md that is a folder, a broken link or a FIFO is reported without blocking."""
    for name in ("folder", "dead", "pipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder/SKILL.md").mkdir()
    (tmp_path / "dead/SKILL.md").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe/SKILL.md")
    findings = lint_path(str(tmp_path))
    assert [finding.code for finding in findings if finding.unseen] == ["unreadable"] * 3


def test_a_folder_of_skills(tmp_path: Path) -> None:
    """Everything that the CLI ignores in a folder of skills is reported with its rule."""
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
    for name, skill_name in files.items():
        (tmp_path / "skills" / name).parent.mkdir(parents=True)
        (tmp_path / "skills" / name).write_text(good.format(skill_name))
    all_findings = lint_path(str(tmp_path / "skills"))
    findings = {
        os.path.relpath(finding.file, tmp_path / "skills"): finding.code
        for finding in all_findings
        if finding.code != "name-not-folder"
    }
    assert findings == {
        "lower/skill.md": "wrong-case",
        ".hidden/SKILL.md": "hidden-folder",
        "node_modules/SKILL.md": "passed-over-folder",
        "outer/inner/SKILL.md": "too-deep",
        "nothing": "no-skill-file",
        "b/SKILL.md": "shadowed",
    }


def test_paths(tmp_path: Path) -> None:
    """`lint_path` accepts a SKILL.md, a skill, a folder of skills and a workspace.

    Other paths are refused.
    """
    folder = tmp_path / "work/.agents/skills/it"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("# Text\n")
    for path in (folder / "SKILL.md", folder, folder.parent, tmp_path / "work"):
        assert [finding.code for finding in lint_path(str(path))] == ["no-front-matter"]
    (tmp_path / "notes.md").write_text("x")
    for path in (tmp_path / "notes.md", tmp_path / "gone"):
        with pytest.raises(GeminidsError, match=r"Give a SKILL\.md"):
            lint_path(str(path))


def test_every_rule_is_explained() -> None:
    """docs/reference/skills.md has a row for each rule, with level and explanation."""
    page = (ROOT / "docs/reference/skills.md").read_text()
    rows = [f"| `{code}` | {level} | {explanation} |" for code, (level, explanation) in RULES.items()]
    assert [row for row in rows if row not in page] == []
