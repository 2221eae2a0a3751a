"""Adding and removing skills: a skill is copied whole or not at all, and no other file is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.gemini.skills.add import add_skill, remove_skill
from geminids.gemini.skills.record import trusted_skills


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def _write_source(folder: Path, name: str = "mine", text: str = "body") -> Path:
    (folder / "scripts").mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n{text}\n")
    (folder / "scripts/go.sh").write_text("true\n")
    (folder / "scripts/go.sh").chmod(0o755)
    return folder


def _files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if not file.is_dir())


def test_add_and_remove(tmp_path: Path, work: Path, places: Places) -> None:
    """The copy is named after the skill, keeps executable files and leaves out `.git`.

    `remove_skill` removes all of it.
    """
    source = _write_source(tmp_path / "mine-main")
    (source / ".git").mkdir()
    (source / ".git/HEAD").write_text("x")
    added = add_skill(str(source), str(work), places)
    assert (added.name, added.warnings) == ("mine", ())
    assert _files(work) == [".agents/skills/mine/SKILL.md", ".agents/skills/mine/scripts/go.sh"]
    assert (work / ".agents/skills/mine/scripts/go.sh").stat().st_mode & 0o100
    remove_skill("mine", str(work), places)
    assert _files(work) == []
    assert list((places.root / "skills").glob("*.json")) == []


def test_an_existing_skill_is_replaced_only_with_force(tmp_path: Path, work: Path, places: Places) -> None:
    """A second add is refused and names `--force`.

    With force the new skill replaces all files of the old one.
    """
    source = _write_source(tmp_path / "mine")
    add_skill(str(source / "SKILL.md"), str(work), places)
    (work / ".agents/skills/mine/extra").write_text("x")
    with pytest.raises(GeminidsError, match="--force"):
        add_skill(str(source), str(work), places)
    assert (work / ".agents/skills/mine/extra").exists()
    _write_source(source, text="new")
    add_skill(str(source), str(work), places, force=True)
    assert _files(work / ".agents/skills") == ["mine/SKILL.md", "mine/scripts/go.sh"]
    assert "new" in (work / ".agents/skills/mine/SKILL.md").read_text()
    assert len(trusted_skills(work, places)) == 1


def test_a_skill_in_its_place_is_trusted_with_force(work: Path, places: Places) -> None:
    """Adding a skill that is already in its place needs force.

    Then the skill is trusted where it is.
    """
    folder = _write_source(work / ".agents/skills/mine")
    with pytest.raises(GeminidsError, match="already exists"):
        add_skill(str(folder), str(work), places)
    assert trusted_skills(work, places) == frozenset()
    add_skill(str(folder), str(work), places, force=True)
    assert trusted_skills(work, places) == {str(folder)}


def _no_front_matter(source: Path) -> None:
    (source / "SKILL.md").write_text("# Text\n")


def _no_file(source: Path) -> None:
    (source / "SKILL.md").unlink()


def _bad_name(source: Path) -> None:
    _write_source(source, "../evil")


def _link_away(source: Path) -> None:
    (source / "out").symlink_to("../../secret")


def _with_a_fifo(source: Path) -> None:
    import os

    os.mkfifo(source / "pipe")


@pytest.mark.parametrize("damage", [_no_front_matter, _no_file, _bad_name, _link_away, _with_a_fifo])
def test_a_skill_with_errors_is_refused(tmp_path: Path, work: Path, places: Places, damage: object) -> None:
    """A skill with errors is not copied, not even in part, and is not trusted."""
    assert callable(damage)
    source = _write_source(tmp_path / "mine")
    damage(source)
    with pytest.raises(GeminidsError):
        add_skill(str(source), str(work), places)
    assert _files(work) == []
    assert list((places.root / "skills").glob("*.json")) == []


def test_a_skills_folder_that_is_a_link(tmp_path: Path, work: Path, places: Places) -> None:
    """If the skills folder of the workspace is a link, nothing is written through it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (work / ".agents").symlink_to(elsewhere)
    with pytest.raises(GeminidsError, match="contains a symbolic link"):
        add_skill(str(_write_source(tmp_path / "mine")), str(work), places)
    assert _files(elsewhere) == []


def test_a_copy_into_itself(tmp_path: Path, places: Places) -> None:
    """A skill is not copied into its own folder."""
    source = _write_source(tmp_path / "mine")
    with pytest.raises(GeminidsError, match="would be inside"):
        add_skill(str(source), str(source), places)
    assert _files(source) == ["SKILL.md", "scripts/go.sh"]


def test_a_changed_skill_is_removed_only_with_force(tmp_path: Path, work: Path, places: Places) -> None:
    """A skill that was not added, or that has changed, is removed only with force.

    A path is not a name.
    """
    not_added = _write_source(work / ".agents/skills/theirs", "theirs")
    add_skill(str(_write_source(tmp_path / "mine")), str(work), places)
    (work / ".agents/skills/mine/notes").write_text("mine")
    for name, message in (
        ("theirs", "was not added by"),
        ("mine", "has changed"),
        ("gone", "there is no skill"),
    ):
        with pytest.raises(GeminidsError, match=message):
            remove_skill(name, str(work), places)
    for name in ("../work", "", ".", "a/b"):
        with pytest.raises(GeminidsError, match="cannot be the name of a skill"):
            remove_skill(name, str(work), places, force=True)
    assert not_added.exists() and (work / ".agents/skills/mine/notes").exists()
    remove_skill("theirs", str(work), places, force=True)
    remove_skill("mine", str(work), places, force=True)
    assert _files(work) == []


def test_drafts_of_a_killed_add_are_removed(tmp_path: Path, work: Path, places: Places) -> None:
    """An add removes the drafts that a killed add has left."""
    (work / ".agents/skills/.geminids-draft-1/deep").mkdir(parents=True)
    add_skill(str(_write_source(tmp_path / "mine")), str(work), places)
    assert [file.name for file in (work / ".agents/skills").iterdir()] == ["mine"]


def test_two_at_once(tmp_path: Path, work: Path, places: Places) -> None:
    """If several processes add the same skill with force, the result is one complete, trusted
    skill.
    """
    script = (
        "import sys; from pathlib import Path; from geminids.config.paths import Places;"
        "from geminids.gemini.skills.add import add_skill;"
        "[add_skill(sys.argv[1], sys.argv[2], Places(Path(sys.argv[3])), force=True)"
        " for _ in range(5)]"
    )
    sources = [_write_source(tmp_path / f"mine-{n}", text=f"body {n}") for n in range(3)]
    started = [
        subprocess.Popen([sys.executable, "-c", script, str(source), str(work), str(places.root)])
        for source in sources
    ]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert _files(work / ".agents/skills") == ["mine/SKILL.md", "mine/scripts/go.sh"]
    assert len(trusted_skills(work, places)) == 1
