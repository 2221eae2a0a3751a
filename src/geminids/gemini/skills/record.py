"""Trusted workspace skills: those that `geminids skills add` recorded and that are unchanged."""

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
from geminids.gemini.skills.tree import Tree, scan_tree

__all__ = [
    "Record",
    "delete_record",
    "is_trusted",
    "record_of",
    "records_locked",
    "trusted_skills",
    "untrusted_skills",
    "write_record",
]


class Record(msgspec.Struct, frozen=True):
    """A skill folder (its real path), and its contents when it was added."""

    folder: str
    tree: Tree
    source: str


def trusted_skills(cwd: str | Path, places: Places) -> frozenset[str]:
    """Return the skill folders of this workspace that have not changed since they were added.

    The folders are real paths, like `Skill.folder` of a workspace skill. Fast if no skill was ever
    added.
    """
    if not _folder(places).is_dir():
        return frozenset()
    skills = os.path.join(os.path.realpath(cwd), ".agents", "skills")
    try:
        names = os.listdir(skills)
    except OSError:
        return frozenset()
    folders = (os.path.join(skills, name) for name in names)
    return frozenset(folder for folder in folders if is_trusted(folder, places))


def is_trusted(folder: str, places: Places) -> bool:
    """Whether this skill folder was added and has not changed since; always False for a link."""
    record = record_of(folder, places)
    if record is None or os.path.realpath(folder) != record.folder:
        return False
    try:
        return scan_tree(folder, record.tree) == record.tree
    except OSError:
        return False


def record_of(folder: str, places: Places) -> Record | None:
    """Return the record of this folder, if any."""
    try:
        record = msgspec.json.decode(_file(folder, places).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None
    return record if record.folder == folder else None


def write_record(record: Record, places: Places) -> None:
    """Write a record atomically; only the owner can read it."""
    write_private(_file(record.folder, places), msgspec.json.encode(record))


def delete_record(folder: str, places: Places) -> None:
    """Delete the record of a folder, if any."""
    _file(folder, places).unlink(missing_ok=True)


@contextmanager
def records_locked(places: Places) -> Iterator[None]:
    """Lock the records: only one process at a time adds or removes skills."""
    file = private_dir(_folder(places)) / ".lock"
    lock = FileLock.take(file, wait=60)
    if lock is None:
        raise GeminidsError(f"another process has locked {file}", hint="Try again later.")
    with closing(lock):
        yield


def _folder(places: Places) -> Path:
    return places.root / "skills"


def _file(folder: str, places: Places) -> Path:
    # crc32 instead of hashlib, as in home.py. A record stores its folder, so a collision is
    # detected.
    data = os.fsencode(folder)
    return _folder(places) / f"{zlib.crc32(data):08x}{zlib.crc32(data[::-1]):08x}.json"


def untrusted_skills(cwd: str | Path, places: Places, *, home: Path | None = None) -> tuple[Skill, ...]:
    """Return the untrusted workspace skills that the CLI would use: turn them off by name.

    A skill with an uncertain name (`sure` is False) cannot be turned off by name: turn off all
    skills, or reject the run. Fast if the workspace has no skills.
    """
    skills = workspace_skills(cwd, home=home)
    if not skills:
        return ()
    trusted = trusted_skills(cwd, places)
    untrusted = [skill for skill in skills if skill.folder not in trusted]
    # Added skills are in .agents, which outranks .gemini: an untrusted skill of the same name in
    # .gemini is never used.
    untrusted_names = {skill.name.lower() for skill in untrusted if skill.tier == "workspace-agents"}
    trusted_names = {skill.name for skill in skills if skill.folder in trusted}
    return tuple(
        skill
        for skill in untrusted
        if skill.tier == "workspace-agents"
        or not skill.sure
        or skill.name not in trusted_names
        or skill.name.lower() in untrusted_names
    )
