"""Store which skills of a workspace are trusted. These are the skills that were added with
`geminids skills add`.

An added skill whose files have changed since then is no longer trusted.
"""

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
from geminids.gemini.skills.folder import Tree, scan_tree

__all__ = [
    "SkillRecord",
    "delete_record",
    "is_trusted",
    "record_of",
    "records_locked",
    "trusted_skills",
    "untrusted_skills",
    "write_record",
]


class SkillRecord(msgspec.Struct, frozen=True):
    """The stored data about a skill that was added with `geminids skills add`.

    `folder` is the real path of the skill's folder, and `tree` is a summary of the folder's
    contents. `source` is the folder from which the skill was copied.
    """

    folder: str
    tree: Tree
    source: str


def trusted_skills(cwd: str | Path, places: Places) -> frozenset[str]:
    """Return the folders of the trusted skills in the workspace `cwd`, as real paths (without
    links).

    A skill is trusted if it was added with `geminids skills add` and has not changed since.
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
    """Return whether the skill in `folder` was added with `geminids skills add` and has not changed
    since.

    If `folder` is a link, the result is False.
    """
    record = record_of(folder, places)
    if record is None or os.path.realpath(folder) != record.folder:
        return False
    try:
        return scan_tree(folder, record.tree) == record.tree
    except OSError:
        return False


def record_of(folder: str, places: Places) -> SkillRecord | None:
    """Return the stored data about the skill in `folder`. Return None if the skill was not added
    with `geminids skills add`, or if the data cannot be read.
    """
    try:
        record = msgspec.json.decode(_file(folder, places).read_bytes(), type=SkillRecord)
    except (OSError, msgspec.MsgspecError):
        return None
    return record if record.folder == folder else None


def write_record(record: SkillRecord, places: Places) -> None:
    """Store the data about an added skill, in a file that only the current user can read."""
    write_private(_file(record.folder, places), msgspec.json.encode(record))


def delete_record(folder: str, places: Places) -> None:
    """Delete the stored data about the skill in `folder`, so that the skill is no longer trusted.
    If nothing is stored about it, do nothing.
    """
    _file(folder, places).unlink(missing_ok=True)


@contextmanager
def records_locked(places: Places) -> Iterator[None]:
    """Hold a lock during the `with` block, so that only one process at a time adds or removes
    skills.

    Raises `GeminidsError` if another process does not release the lock within 60 seconds.
    """
    file = private_dir(_folder(places)) / ".lock"
    lock = FileLock.take(file, wait=60)
    if lock is None:
        message = f"no skill was changed: another process has locked {file} for 60 seconds"
        raise GeminidsError(message, hint="Try again later.")
    with closing(lock):
        yield


def _folder(places: Places) -> Path:
    return places.root / "skills"


def _file(folder: str, places: Places) -> Path:
    # Use crc32, because importing hashlib loads OpenSSL, which takes 16 ms. If two folders have the
    # same file name, `record_of` detects this, because the record contains the folder.
    data = os.fsencode(folder)
    return _folder(places) / f"{zlib.crc32(data):08x}{zlib.crc32(data[::-1]):08x}.json"


def untrusted_skills(cwd: str | Path, places: Places, *, home: Path | None = None) -> tuple[Skill, ...]:
    """Return the skills in the workspace `cwd` that the CLI would use, although they are not
    trusted.

    The caller must turn off these skills by their names. If the name of a skill is uncertain
    (`sure` is False), the caller must turn off all skills, or reject the run.
    """
    skills = workspace_skills(cwd, home=home)
    if not skills:
        return ()
    trusted = trusted_skills(cwd, places)
    untrusted = [skill for skill in skills if skill.folder not in trusted]
    # Added skills are in .agents, which has a higher precedence than .gemini. So the CLI never uses
    # an untrusted skill in .gemini that has the name of an added one.
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
