"""Which workspace skills were added by `geminids skills add` and are unchanged, and which are not trusted."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from geminids.config.flock import FileLock
from geminids.config.paths import Places, private_dir, write_private
from geminids.errors import GeminidsError
from geminids.gemini.skills.find import Skill, workspace_skills
from geminids.gemini.skills.tree import Tree, look_at

__all__ = [
    "Record",
    "forget",
    "is_vouched",
    "record_of",
    "records_locked",
    "untrusted_skills",
    "vouch",
    "vouched_skills",
]


class Record(msgspec.Struct, frozen=True):
    """A skill folder (its real path) and what was in it when the owner added it."""

    folder: str
    tree: Tree
    source: str


def vouched_skills(cwd: str | Path, places: Places) -> frozenset[str]:
    """The skill folders of this workspace that are byte for byte what was added. Fast where nothing ever was.

    The folders are real paths, as `Skill.folder` of a workspace skill is.
    """
    if not _folder(places).is_dir():
        return frozenset()
    skills = os.path.join(os.path.realpath(cwd), ".agents", "skills")
    try:
        names = os.listdir(skills)
    except OSError:
        return frozenset()
    folders = (os.path.join(skills, name) for name in names)
    return frozenset(folder for folder in folders if is_vouched(folder, places))


def is_vouched(folder: str, places: Places) -> bool:
    """Whether this skill folder was added by its owner and has not changed since; a link never is."""
    record = record_of(folder, places)
    if record is None or os.path.realpath(folder) != record.folder:
        return False
    try:
        return look_at(folder, record.tree) == record.tree
    except OSError:
        return False


def record_of(folder: str, places: Places) -> Record | None:
    """What was written down of this folder, if anything."""
    try:
        record = msgspec.json.decode(_file(folder, places).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None
    return record if record.folder == folder else None


def vouch(record: Record, places: Places) -> None:
    """Write it down, for the owner's eyes only, whole or not at all."""
    write_private(_file(record.folder, places), msgspec.json.encode(record))


def forget(folder: str, places: Places) -> None:
    """Take the word back."""
    _file(folder, places).unlink(missing_ok=True)


@contextmanager
def records_locked(places: Places) -> Iterator[None]:
    """One at a time adds or removes skills."""
    file = private_dir(_folder(places)) / ".lock"
    lock = FileLock.take(file, wait=60)
    if lock is None:
        raise GeminidsError(f"{file} is held by another process", hint="Try again later.")
    with closing(lock):
        yield


def _folder(places: Places) -> Path:
    return places.root / "skills"


def _file(folder: str, places: Places) -> Path:
    # Not hashlib, as in home.py; a record tells its folder in full, so that a clash is seen.
    data = os.fsencode(folder)
    return _folder(places) / f"{zlib.crc32(data):08x}{zlib.crc32(data[::-1]):08x}.json"


def untrusted_skills(cwd: str | Path, places: Places, *, home: Path | None = None) -> tuple[Skill, ...]:
    """The skills to turn off by name, since nobody vouches for what the CLI would take. Fast where there are none.

    One without a certain name (`sure` is False) cannot be turned off by it: all skills must be, or the run refused.
    """
    found = workspace_skills(cwd, home=home)
    if not found:
        return ()
    vouched = vouched_skills(cwd, places)
    strange = [skill for skill in found if skill.folder not in vouched]
    # What was added lies in .agents, which outranks .gemini: there, a namesake harms nobody.
    strange_names = {skill.name.lower() for skill in strange if skill.tier == "workspace-agents"}
    added_names = {skill.name for skill in found if skill.folder in vouched}
    return tuple(
        skill
        for skill in strange
        if skill.tier == "workspace-agents"
        or not skill.sure
        or skill.name not in added_names
        or skill.name.lower() in strange_names
    )
