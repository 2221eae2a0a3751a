"""The record of added skills: a skill is trusted only as long as every byte is as it was added."""

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


def _write_skill(folder: Path, name: str) -> Path:
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n")
    (folder / "scripts/go.sh").write_text("echo one\n")
    (folder / "scripts/go.sh").chmod(0o755)
    (folder / "link").symlink_to("scripts/go.sh")
    return folder


@pytest.fixture
def added(tmp_path: Path, places: Places) -> Path:
    """A skill that the user has added to the workspace."""
    (tmp_path / "work").mkdir()
    source = _write_skill(tmp_path / "source", "mine")
    done = add_skill(str(source), str(tmp_path / "work"), places)
    return Path(done.folder)


def _untrusted_names(cwd: Path, places: Places) -> list[str]:
    return [skill.name for skill in untrusted_skills(cwd, places)]


def test_an_added_skill_is_trusted(tmp_path: Path, places: Places, added: Path) -> None:
    """An added skill is trusted; one that came with the repository is not."""
    other = _write_skill(tmp_path / "work/.agents/skills/other", "other")
    assert trusted_skills(tmp_path / "work", places) == {str(added)}
    assert _untrusted_names(tmp_path / "work", places) == ["other"]
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


def _missing_file(folder: Path) -> None:
    (folder / "scripts/go.sh").unlink()


def _renamed_file(folder: Path) -> None:
    (folder / "scripts/go.sh").rename(folder / "scripts/og.sh")


def _not_executable(folder: Path) -> None:
    (folder / "scripts/go.sh").chmod(0o644)


def _link_elsewhere(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to("scripts/og.sh")


def _pipe(folder: Path) -> None:
    (folder / "scripts/go.sh").unlink()
    os.mkfifo(folder / "scripts/go.sh")


def _replaced_by_a_link(folder: Path) -> None:
    target = folder.parent.parent / "target"
    folder.rename(target)
    folder.symlink_to(target)


CHANGES: tuple[Callable[[Path], None], ...] = (
    _same_size,
    _other_text,
    _new_file,
    _hidden_file,
    _missing_file,
    _renamed_file,
    _not_executable,
    _link_elsewhere,
    _pipe,
    _replaced_by_a_link,
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_skill_is_not_trusted(
    tmp_path: Path, places: Places, added: Path, change: Callable[[Path], None]
) -> None:
    """After any change in its folder, an added skill is no longer trusted."""
    assert _untrusted_names(tmp_path / "work", places) == []
    change(added)
    assert trusted_skills(tmp_path / "work", places) == frozenset()
    assert _untrusted_names(tmp_path / "work", places) == ["mine"]


def test_trust_holds_for_one_place(tmp_path: Path, places: Places, added: Path) -> None:
    """The same files in another workspace or under another folder name are not trusted."""
    _write_skill(tmp_path / "other/.agents/skills/mine", "mine")
    assert _untrusted_names(tmp_path / "other", places) == ["mine"]
    added.rename(added.parent / "moved")
    assert _untrusted_names(tmp_path / "work", places) == ["mine"]


def test_skills_of_the_same_name(tmp_path: Path, places: Places, added: Path) -> None:
    """A skill of the same name in a lower tier changes nothing.

    In the same tier, neither of the two is trusted.
    """
    _write_skill(tmp_path / "work/.gemini/skills/mine", "mine")
    assert _untrusted_names(tmp_path / "work", places) == []
    _write_skill(tmp_path / "work/.agents/skills/a-mine", "mine")
    assert _untrusted_names(tmp_path / "work", places) == ["mine", "mine"]


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"\xff", b'{"folder": 1}'])
def test_a_broken_record_trusts_nothing(tmp_path: Path, places: Places, added: Path, text: bytes) -> None:
    """With an unreadable record, no skill is trusted."""
    (record,) = (places.root / "skills").glob("*.json")
    record.write_bytes(text)
    assert _untrusted_names(tmp_path / "work", places) == ["mine"]


def test_records_are_private(places: Places, added: Path) -> None:
    """The folder of records has mode 0700 and each file 0600."""
    folder = places.root / "skills"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
