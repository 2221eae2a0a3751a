"""Skills by tier, as far as no CLI is needed. tests/real/workspace/test_skills.py compares everything with
it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from geminids.gemini.skills.find import Skill, find_skills, workspace_skills


def _write_skill(folder: Path, head: str) -> str:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\n{head}\n---\n")
    return str(folder / "SKILL.md")


def _write_named_skill(folder: Path, name: str) -> str:
    return _write_skill(folder, f"name: {name}\ndescription: d")


def _by_file(skills: tuple[Skill, ...]) -> dict[str, Skill]:
    return {skill.file: skill for skill in skills}


def test_both_folders_of_a_workspace(tmp_path: Path) -> None:
    """Skills of a workspace are found in .gemini/skills and in .agents/skills."""
    _write_named_skill(tmp_path / "work/.gemini/skills/a", "a")
    _write_named_skill(tmp_path / "work/.agents/skills/b", "b")
    assert [skill.name for skill in workspace_skills(tmp_path / "work")] == ["a", "b"]


def test_the_highest_tier_wins(tmp_path: Path) -> None:
    """Of skills with one name, the highest tier counts.

    The others name the file that shadows them.
    """
    low = _write_named_skill(tmp_path / "home/.gemini/skills/x", "same")
    middle = _write_named_skill(tmp_path / "home/.agents/skills/y", "same")
    high = _write_named_skill(tmp_path / "work/.gemini/skills/z", "same")
    skills = _by_file(find_skills(tmp_path / "work", tmp_path / "home"))
    assert {file: skill.shadowed_by for file, skill in skills.items()} == {
        low: high,
        middle: high,
        high: None,
    }


def test_disabled_skills(tmp_path: Path) -> None:
    """A disabled skill names the setting that disables it: its name in any case, or all skills."""
    _write_named_skill(tmp_path / "home/.gemini/skills/a", "Apple")
    _write_named_skill(tmp_path / "home/.gemini/skills/b", "b")
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()

    def off(**settings: object) -> dict[str, str | None]:
        found = find_skills(work, home, settings=settings)
        return {skill.name: skill.off for skill in found}

    assert off(skills={"disabled": ["aPPLE"]}) == {"Apple": "skills.disabled", "b": None}
    assert set(off(skills={"enabled": False}).values()) == {"skills.enabled"}


def test_a_home_is_no_workspace(tmp_path: Path) -> None:
    """If the work folder is the home, the user's skills are listed once and do not count as
    workspace skills.
    """
    file = _write_named_skill(tmp_path / ".gemini/skills/a", "a")
    assert [(skill.file, skill.tier) for skill in find_skills(tmp_path, tmp_path)] == [(file, "user")]
    assert workspace_skills(tmp_path, home=tmp_path) == ()


def test_a_skill_with_an_undecodable_name_is_reported(tmp_path: Path) -> None:
    """A skill whose name only the CLI may be able to read is listed with an empty name.

    A file without front matter is not listed.
    """
    _write_skill(tmp_path / ".agents/skills/evil", "<<: {'name': evil}\ndescription: d")
    (tmp_path / ".agents/skills/text").mkdir()
    (tmp_path / ".agents/skills/text/SKILL.md").write_text("# no front matter\n")
    (skill,) = workspace_skills(tmp_path)
    assert (skill.name, skill.sure) == ("", False)
    assert skill.folder.endswith("evil")


def test_a_workspace_without_skills_loads_nothing(tmp_path: Path) -> None:
    """For a workspace without skills, no YAML parser is imported."""
    script = (
        "import sys; from geminids.gemini.skills.find import workspace_skills;"
        f"assert workspace_skills({str(tmp_path)!r}) == ();"
        "print([name for name in sys.modules if name in ('yaml', 'hashlib')])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"
