"""Tests of the skills in a private home: those of the run in addition to the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminids.config.paths import Places
from geminids.gemini.skills.find import find_skills
from geminids.launch.errors import Refused
from geminids.launch.home import SourceHome, plan_home, skill_links, write_home


def _skill(folder: Path, name: str, description: str = "d") -> str:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n")
    return str(folder)


def _visible_skills(home: Path, tmp_path: Path) -> dict[str, str]:
    skills = find_skills(tmp_path / "nowhere", home)
    return {skill.name: skill.description for skill in skills if skill.wins}


@pytest.fixture
def source(tmp_path: Path) -> SourceHome:
    home = tmp_path / "home"
    _skill(home / ".gemini/skills/mine", "mine")
    _skill(home / ".gemini/skills/other-folder", "both", "the user's")
    _skill(home / ".agents/skills/both", "both", "the user's too")
    _skill(home / ".agents/skills/agents", "agents")
    (home / ".agents/notes").mkdir()
    return SourceHome("user", home, {})


def _write(source: SourceHome, tmp_path: Path, *skills: str) -> Path:
    links = skill_links(source.path, skills)
    home = plan_home(source, {}, Places(tmp_path / "geminids"), skills=links)
    write_home(home)
    return home.path


def test_a_given_skill_wins(tmp_path: Path, source: SourceHome) -> None:
    """A skill of the run replaces the user's skill of the same name.

    The user's other skills and the rest of `.agents` stay.
    """
    home = _write(source, tmp_path, _skill(tmp_path / "both", "both", "given"))
    assert _visible_skills(home, tmp_path) == {"mine": "d", "agents": "d", "both": "given"}
    assert (home / ".agents/notes").is_dir()


def test_the_later_of_two_skills_wins(tmp_path: Path, source: SourceHome) -> None:
    """Of two given skills with the same name the later one is used.

    Folders of the same name do not conflict.
    """
    folders = [_skill(tmp_path / "1/x", "twice", "first"), _skill(tmp_path / "2/x", "twice", "second")]
    folders += [
        _skill(tmp_path / "3/mine", "three"),
        _skill(tmp_path / "4/.x", "four"),
        _skill(tmp_path / "node_modules", "five"),
    ]
    skills = _visible_skills(_write(source, tmp_path, *folders), tmp_path)
    assert skills["twice"] == "second"
    assert {"mine", "three", "four", "five"} <= set(skills)


def test_each_home_has_its_own_skills(tmp_path: Path, source: SourceHome) -> None:
    """Runs with different skills have different homes, and a home includes new skills of the user.

    Without given skills, the skills folder is a link.
    """
    a, b = _skill(tmp_path / "a", "a"), _skill(tmp_path / "b", "b")
    homes = [_write(source, tmp_path), _write(source, tmp_path, a), _write(source, tmp_path, b)]
    assert len(set(homes)) == 3
    assert _write(source, tmp_path, a) == homes[1]
    assert (homes[0] / ".gemini/skills").is_symlink()
    _skill(source.gemini / "skills/new", "new")
    assert "new" in _visible_skills(_write(source, tmp_path, a), tmp_path)
    assert "b" not in _visible_skills(homes[1], tmp_path)


def test_a_folder_without_a_skill_is_refused(tmp_path: Path, source: SourceHome) -> None:
    """A folder that the CLI would ignore without a message is refused."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(Refused, match="Gemini CLI would ignore") as caught:
        _write(source, tmp_path, str(tmp_path / "empty"))
    assert caught.value.failure.kind == "bad_option"


def test_a_user_without_skills(tmp_path: Path) -> None:
    """Given skills work if the user has none."""
    (tmp_path / "bare").mkdir()
    home = _write(SourceHome("user", tmp_path / "bare", {}), tmp_path, _skill(tmp_path / "a", "a"))
    assert _visible_skills(home, tmp_path) == {"a": "d"}
