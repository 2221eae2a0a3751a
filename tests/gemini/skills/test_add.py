"""Adding and removing skills: whole or not at all, and nothing of the project's is lost."""

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


def _source(folder: Path, name: str = "mine", text: str = "body") -> Path:
    (folder / "scripts").mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n{text}\n")
    (folder / "scripts/go.sh").write_text("true\n")
    (folder / "scripts/go.sh").chmod(0o755)
    return folder


def _files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if not file.is_dir())


def test_add_and_remove(tmp_path: Path, work: Path, places: Places) -> None:
    """The copy has the skill's name, its programs stay programs, history stays behind; removing leaves nothing."""
    source = _source(tmp_path / "mine-main")
    (source / ".git").mkdir()
    (source / ".git/HEAD").write_text("x")
    added = add_skill(str(source), str(work), places)
    assert (added.name, added.warnings) == ("mine", ())
    assert _files(work) == [".agents/skills/mine/SKILL.md", ".agents/skills/mine/scripts/go.sh"]
    assert (work / ".agents/skills/mine/scripts/go.sh").stat().st_mode & 0o100
    remove_skill("mine", str(work), places)
    assert _files(work) == []
    assert list((places.root / "skills").glob("*.json")) == []


def test_a_skill_that_is_there_stays(tmp_path: Path, work: Path, places: Places) -> None:
    """A second add says what to do; with force the new one is there, and nothing of the old."""
    source = _source(tmp_path / "mine")
    add_skill(str(source / "SKILL.md"), str(work), places)
    (work / ".agents/skills/mine/extra").write_text("x")
    with pytest.raises(GeminidsError, match="--force"):
        add_skill(str(source), str(work), places)
    assert (work / ".agents/skills/mine/extra").exists()
    _source(source, text="new")
    add_skill(str(source), str(work), places, force=True)
    assert _files(work / ".agents/skills") == ["mine/SKILL.md", "mine/scripts/go.sh"]
    assert "new" in (work / ".agents/skills/mine/SKILL.md").read_text()
    assert len(trusted_skills(work, places)) == 1


def test_a_word_for_what_is_there(work: Path, places: Places) -> None:
    """A skill of the project is vouched for where it lies, if its owner says so."""
    folder = _source(work / ".agents/skills/mine")
    with pytest.raises(GeminidsError, match="already exists"):
        add_skill(str(folder), str(work), places)
    assert trusted_skills(work, places) == frozenset()
    add_skill(str(folder), str(work), places, force=True)
    assert trusted_skills(work, places) == {str(folder)}


def _no_head(source: Path) -> None:
    (source / "SKILL.md").write_text("# Text\n")


def _no_file(source: Path) -> None:
    (source / "SKILL.md").unlink()


def _bad_name(source: Path) -> None:
    _source(source, "../evil")


def _link_away(source: Path) -> None:
    (source / "out").symlink_to("../../secret")


def _not_readable_as_a_tree(source: Path) -> None:
    import os

    os.mkfifo(source / "pipe")


@pytest.mark.parametrize("spoil", [_no_head, _no_file, _bad_name, _link_away, _not_readable_as_a_tree])
def test_what_is_refused(tmp_path: Path, work: Path, places: Places, spoil: object) -> None:
    """A skill with errors is not copied, not in part either, and nothing vouches for it."""
    assert callable(spoil)
    source = _source(tmp_path / "mine")
    spoil(source)
    with pytest.raises(GeminidsError):
        add_skill(str(source), str(work), places)
    assert _files(work) == []
    assert list((places.root / "skills").glob("*.json")) == []


def test_a_folder_that_leads_away(tmp_path: Path, work: Path, places: Places) -> None:
    """Where the workspace's skills folder is a link, nothing is written behind it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (work / ".agents").symlink_to(elsewhere)
    with pytest.raises(GeminidsError, match="is a link"):
        add_skill(str(_source(tmp_path / "mine")), str(work), places)
    assert _files(elsewhere) == []


def test_a_copy_into_itself(tmp_path: Path, places: Places) -> None:
    """A skill is not copied into its own folder."""
    source = _source(tmp_path / "mine")
    with pytest.raises(GeminidsError, match="would be inside"):
        add_skill(str(source), str(source), places)
    assert _files(source) == ["SKILL.md", "scripts/go.sh"]


def test_what_is_not_removed(tmp_path: Path, work: Path, places: Places) -> None:
    """What was not added, or has changed since, is removed by force alone; a path is no name."""
    theirs = _source(work / ".agents/skills/theirs", "theirs")
    add_skill(str(_source(tmp_path / "mine")), str(work), places)
    (work / ".agents/skills/mine/notes").write_text("mine")
    for name, why in (
        ("theirs", "was not added by"),
        ("mine", "has changed"),
        ("gone", "there is no skill"),
    ):
        with pytest.raises(GeminidsError, match=why):
            remove_skill(name, str(work), places)
    for name in ("../work", "", ".", "a/b"):
        with pytest.raises(GeminidsError, match="not the name of a skill"):
            remove_skill(name, str(work), places, force=True)
    assert theirs.exists() and (work / ".agents/skills/mine/notes").exists()
    remove_skill("theirs", str(work), places, force=True)
    remove_skill("mine", str(work), places, force=True)
    assert _files(work) == []


def test_drafts_of_a_killed_add_are_swept(tmp_path: Path, work: Path, places: Places) -> None:
    """What a killed add has left is hidden from the CLI, and gone with the next."""
    (work / ".agents/skills/.geminids-draft-1/deep").mkdir(parents=True)
    add_skill(str(_source(tmp_path / "mine")), str(work), places)
    assert [file.name for file in (work / ".agents/skills").iterdir()] == ["mine"]


def test_two_at_once(tmp_path: Path, work: Path, places: Places) -> None:
    """Of many processes that add one skill by force, the last is there, whole and vouched for."""
    script = (
        "import sys; from pathlib import Path; from geminids.config.paths import Places;"
        "from geminids.gemini.skills.add import add_skill;"
        "[add_skill(sys.argv[1], sys.argv[2], Places(Path(sys.argv[3])), force=True)"
        " for _ in range(5)]"
    )
    sources = [_source(tmp_path / f"mine-{n}", text=f"body {n}") for n in range(3)]
    started = [
        subprocess.Popen([sys.executable, "-c", script, str(source), str(work), str(places.root)])
        for source in sources
    ]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert _files(work / ".agents/skills") == ["mine/SKILL.md", "mine/scripts/go.sh"]
    assert len(trusted_skills(work, places)) == 1
