"""Add skills to a workspace as trusted, and remove them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import msgspec

from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.gemini.skills.file import read_skill
from geminids.gemini.skills.lint import Finding, lint_skill
from geminids.gemini.skills.record import (
    Record,
    delete_record,
    is_trusted,
    record_of,
    records_locked,
    write_record,
)
from geminids.gemini.skills.tree import copy_tree, scan_tree

__all__ = ["Added", "add_skill", "remove_skill"]

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# A hidden name, which the CLI ignores: it never sees an incomplete copy.
_DRAFT = ".geminids-draft-"


class Added(msgspec.Struct, frozen=True):
    """A skill that was added, and its lint warnings."""

    name: str
    folder: str
    warnings: tuple[Finding, ...]


def add_skill(source: str, cwd: str, places: Places, *, force: bool = False) -> Added:
    """Copy a skill's folder to `<cwd>/.agents/skills/<name>`, and record it as trusted."""
    folder = os.path.dirname(os.path.abspath(source)) if os.path.isfile(source) else os.path.abspath(source)
    file = os.path.join(folder, "SKILL.md")
    if not os.path.lexists(file):
        raise GeminidsError(f"{folder} has no SKILL.md", hint="Give the folder of one skill.")
    # The source folder may have any name: the copy is named after the skill.
    findings = lint_skill(file, in_folder=False)
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        lines = "".join(f"\n  {error.file}:{error.line}: {error.message} ({error.code})" for error in errors)
        raise GeminidsError(f"{folder} has errors:{lines}", hint="Fix them first.")
    name = read_skill(file).name
    try:
        with records_locked(places):
            target = _copy_skill(folder, name, cwd, places, force)
    except OSError as error:
        raise GeminidsError(f"the skill cannot be copied: {error}") from None
    return Added(name, target, tuple(findings))


def remove_skill(name: str, cwd: str, places: Places, *, force: bool = False) -> str:
    """Remove a skill from `<cwd>/.agents/skills`, and its record; return its folder."""
    if not _NAME.fullmatch(name):
        raise GeminidsError(
            f"{name!r} is not the name of a skill", hint="Run `geminids skills list` to see the names."
        )
    target = os.path.join(_skills_folder(cwd), name)
    try:
        with records_locked(places):
            _check_removal(name, target, places, force)
            delete_record(target, places)  # first: a partly removed skill must not be trusted
            _remove(target)
    except OSError as error:
        raise GeminidsError(f"{target} cannot be removed: {error}") from None
    return target


def _copy_skill(source: str, name: str, cwd: str, places: Places, force: bool) -> str:
    skills = _skills_folder(cwd)
    target = os.path.join(skills, name)
    if os.path.lexists(target) and not force:
        hint = "Replace it with --force, or remove it with `geminids skills remove`."
        raise GeminidsError(f"{target} already exists", hint=hint)
    if os.path.realpath(source) == os.path.realpath(target):
        write_record(
            Record(target, scan_tree(target), source), places
        )  # already in place: record it as trusted
        return target
    if f"{skills}{os.sep}".startswith(f"{os.path.realpath(source)}{os.sep}"):
        raise GeminidsError(f"{target} would be inside {source}", hint="Choose another folder with --cwd.")
    os.makedirs(skills, exist_ok=True)
    if os.path.realpath(skills) != skills:
        raise GeminidsError(
            f"{skills} is a link, or is reached through one", hint="Make it a folder of the workspace."
        )
    _remove_drafts(skills)
    draft = os.path.join(skills, f"{_DRAFT}{os.urandom(4).hex()}")
    try:
        copy_tree(source, draft)
        tree = scan_tree(draft)  # of the copy: the source may have changed meanwhile
        write_record(Record(target, tree, source), places)
        _remove(target)
        os.rename(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _check_removal(name: str, target: str, places: Places, force: bool) -> None:
    exists, record = os.path.lexists(target), record_of(target, places)
    if not exists and record is None:
        raise GeminidsError(f"there is no skill {name!r} in {os.path.dirname(target)}")
    if not exists or force:
        return
    if record is None:
        hint = "It may be part of the project. Use --force to remove it anyway."
        raise GeminidsError(f"{target} was not added by `geminids skills add`", hint=hint)
    if not is_trusted(target, places):
        hint = "Its changes would be lost. Use --force to remove it anyway."
        raise GeminidsError(f"{target} has changed since it was added", hint=hint)


def _remove(target: str) -> None:
    """Hide the folder by a rename, so that the CLI never sees a part of it, then delete it."""
    if os.path.islink(target) or os.path.isfile(target):
        os.unlink(target)
    elif os.path.isdir(target):
        hidden = os.path.join(os.path.dirname(target), f"{_DRAFT}{os.urandom(4).hex()}")
        os.rename(target, hidden)
        shutil.rmtree(hidden)


def _remove_drafts(skills: str) -> None:
    """Remove the drafts of killed adds. We hold the lock, so no draft is in use."""
    for name in os.listdir(skills):
        if name.startswith(_DRAFT):
            shutil.rmtree(os.path.join(skills, name), ignore_errors=True)


def _skills_folder(cwd: str | Path) -> str:
    if not os.path.isdir(cwd):
        raise GeminidsError(f"{cwd} is not a folder", hint="Choose a folder with --cwd.")
    return os.path.join(os.path.realpath(cwd), ".agents", "skills")
