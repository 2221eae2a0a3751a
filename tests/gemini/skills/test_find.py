"""Skills by tier: the parts that need no CLI to judge them (tests/real/test_skills.py compares all of it)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from geminids.gemini.skills.find import Skill, find_skills, workspace_skills


def _skill(folder: Path, head: str) -> str:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\n{head}\n---\n")
    return str(folder / "SKILL.md")


def _named(folder: Path, name: str) -> str:
    return _skill(folder, f"name: {name}\ndescription: d")


def _by_file(found: tuple[Skill, ...]) -> dict[str, Skill]:
    return {skill.file: skill for skill in found}


def test_both_folders_of_a_workspace(tmp_path: Path) -> None:
    """Skills lie in .gemini/skills and in .agents/skills."""
    _named(tmp_path / "work/.gemini/skills/a", "a")
    _named(tmp_path / "work/.agents/skills/b", "b")
    assert [skill.name for skill in workspace_skills(tmp_path / "work")] == ["a", "b"]


def test_the_highest_tier_wins(tmp_path: Path) -> None:
    """A shadowed skill names the file that is taken in its place, and is not lost."""
    low = _named(tmp_path / "home/.gemini/skills/x", "same")
    middle = _named(tmp_path / "home/.agents/skills/y", "same")
    high = _named(tmp_path / "work/.gemini/skills/z", "same")
    found = _by_file(find_skills(tmp_path / "work", tmp_path / "home"))
    assert {file: skill.shadowed_by for file, skill in found.items()} == {low: high, middle: high, high: None}


def test_switches(tmp_path: Path) -> None:
    """A skill that is turned off names the setting: one name in any case, or all of them."""
    _named(tmp_path / "home/.gemini/skills/a", "Apple")
    _named(tmp_path / "home/.gemini/skills/b", "b")
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()

    def off(**settings: object) -> dict[str, str | None]:
        found = find_skills(work, home, settings=settings)
        return {skill.name: skill.off for skill in found}

    assert off(skills={"disabled": ["aPPLE"]}) == {"Apple": "skills.disabled", "b": None}
    assert set(off(skills={"enabled": False}).values()) == {"skills.enabled"}


def test_a_home_is_no_workspace(tmp_path: Path) -> None:
    """Whoever works in the home has the user's own skills there, once."""
    file = _named(tmp_path / ".gemini/skills/a", "a")
    assert [(skill.file, skill.tier) for skill in find_skills(tmp_path, tmp_path)] == [(file, "user")]
    assert workspace_skills(tmp_path, home=tmp_path) == ()


def test_a_name_that_cannot_be_read_is_told_all_the_same(tmp_path: Path) -> None:
    """A skill that the CLI may see, though we find no name in it, is among a workspace's; a plain failure is not."""
    _skill(tmp_path / ".agents/skills/evil", "<<: {'name': evil}\ndescription: d")
    (tmp_path / ".agents/skills/text").mkdir()
    (tmp_path / ".agents/skills/text/SKILL.md").write_text("# no front matter\n")
    (found,) = workspace_skills(tmp_path)
    assert (found.name, found.sure) == ("", False)
    assert found.folder.endswith("evil")


def test_a_workspace_without_skills_loads_nothing(tmp_path: Path) -> None:
    """Most folders have none: then no reader of YAML is imported."""
    script = (
        "import sys; from geminids.gemini.skills.find import workspace_skills;"
        f"assert workspace_skills({str(tmp_path)!r}) == ();"
        "print([name for name in sys.modules if name in ('yaml', 'geminids.gemini.skills.file') or name == 'hashlib'])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"
