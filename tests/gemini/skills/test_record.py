"""The owner's word: it holds for what was added, byte for byte, and for nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from geminids.config.paths import Places
from geminids.gemini.skills.add import add_skill
from geminids.gemini.skills.record import trusted_skills, untrusted_skills


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


def _write(folder: Path, name: str) -> Path:
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n")
    (folder / "scripts/go.sh").write_text("echo one\n")
    (folder / "scripts/go.sh").chmod(0o755)
    (folder / "link").symlink_to("scripts/go.sh")
    return folder


@pytest.fixture
def added(tmp_path: Path, places: Places) -> Path:
    """A workspace skill that its owner has added."""
    (tmp_path / "work").mkdir()
    source = _write(tmp_path / "source", "mine")
    done = add_skill(str(source), str(tmp_path / "work"), places)
    return Path(done.folder)


def _names(cwd: Path, places: Places) -> list[str]:
    return [skill.name for skill in untrusted_skills(cwd, places)]


def test_what_was_added_is_vouched_for(tmp_path: Path, places: Places, added: Path) -> None:
    """It is trusted, and its neighbour, which came with the repository, is not."""
    other = _write(tmp_path / "work/.agents/skills/other", "other")
    assert trusted_skills(tmp_path / "work", places) == {str(added)}
    assert _names(tmp_path / "work", places) == ["other"]
    assert str(other) not in trusted_skills(tmp_path / "work", places)


def _same_size(folder: Path) -> None:
    (folder / "scripts/go.sh").write_text("echo two\n")


def _other_text(folder: Path) -> None:
    (folder / "SKILL.md").write_text("---\nname: mine\ndescription: evil\n---\n")


def _new_file(folder: Path) -> None:
    (folder / "more.sh").write_text("")


def _hidden_file(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git/x").write_text("")


def _file_less(folder: Path) -> None:
    (folder / "scripts/go.sh").unlink()


def _other_name(folder: Path) -> None:
    (folder / "scripts/go.sh").rename(folder / "scripts/og.sh")


def _no_program(folder: Path) -> None:
    (folder / "scripts/go.sh").chmod(0o644)


def _link_elsewhere(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to("scripts/og.sh")


def _pipe(folder: Path) -> None:
    (folder / "scripts/go.sh").unlink()
    os.mkfifo(folder / "scripts/go.sh")


def _behind_a_link(folder: Path) -> None:
    aside = folder.parent.parent / "aside"
    folder.rename(aside)
    folder.symlink_to(aside)


CHANGES: tuple[Callable[[Path], None], ...] = (
    _same_size,
    _other_text,
    _new_file,
    _hidden_file,
    _file_less,
    _other_name,
    _no_program,
    _link_elsewhere,
    _pipe,
    _behind_a_link,
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_skill_is_not_vouched_for(
    tmp_path: Path, places: Places, added: Path, change: Callable[[Path], None]
) -> None:
    """Whatever changes in it, the word for it is void."""
    assert _names(tmp_path / "work", places) == []
    change(added)
    assert trusted_skills(tmp_path / "work", places) == frozenset()
    assert _names(tmp_path / "work", places) == ["mine"]


def test_the_word_is_for_one_place(tmp_path: Path, places: Places, added: Path) -> None:
    """The same bytes in another folder, or under another name, are not what was added."""
    _write(tmp_path / "other/.agents/skills/mine", "mine")
    assert _names(tmp_path / "other", places) == ["mine"]
    added.rename(added.parent / "moved")
    assert _names(tmp_path / "work", places) == ["mine"]


def test_namesakes(tmp_path: Path, places: Places, added: Path) -> None:
    """A namesake that the added one outranks changes nothing; one beside it is not trusted."""
    _write(tmp_path / "work/.gemini/skills/mine", "mine")
    assert _names(tmp_path / "work", places) == []
    _write(tmp_path / "work/.agents/skills/a-mine", "mine")
    assert _names(tmp_path / "work", places) == ["mine", "mine"]


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"\xff", b'{"folder": 1}'])
def test_a_broken_record_is_no_word(tmp_path: Path, places: Places, added: Path, text: bytes) -> None:
    """A record that cannot be read vouches for nothing."""
    (record,) = (places.root / "skills").glob("*.json")
    record.write_bytes(text)
    assert _names(tmp_path / "work", places) == ["mine"]


def test_records_are_private(places: Places, added: Path) -> None:
    """Only the owner can read and write them."""
    folder = places.root / "skills"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
