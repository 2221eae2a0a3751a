"""Skills put into a workspace, with the owner's word for them, and taken away again."""

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
from geminids.gemini.skills.record import Record, forget, is_vouched, record_of, records_locked, vouch
from geminids.gemini.skills.tree import copy_tree, look_at

__all__ = ["Added", "add_skill", "remove_skill"]

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# Hidden, so that the CLI passes over it: a half copied skill is never seen.
_DRAFT = ".geminids-draft-"


class Added(msgspec.Struct, frozen=True):
    """A skill that is in its place now, and what lint would still say of it (warnings)."""

    name: str
    folder: str
    warnings: tuple[Finding, ...]


def add_skill(source: str, cwd: str, places: Places, *, force: bool = False) -> Added:
    """Copy a skill's folder to `<cwd>/.agents/skills/<name>` and write down that the owner vouches for it."""
    folder = os.path.dirname(os.path.abspath(source)) if os.path.isfile(source) else os.path.abspath(source)
    file = os.path.join(folder, "SKILL.md")
    if not os.path.lexists(file):
        raise GeminidsError(f"{folder} holds no SKILL.md", hint="Name the folder of one skill.")
    # Its folder may have any name: the copy gets the right one.
    found = lint_skill(file, in_folder=False)
    errors = [one for one in found if one.level == "error"]
    if errors:
        lines = "".join(f"\n  {one.file}:{one.line}: {one.message} ({one.code})" for one in errors)
        raise GeminidsError(f"{folder} is not fit to be added:{lines}", hint="Mend that first.")
    name = read_skill(file).name
    try:
        with records_locked(places):
            target = _put(folder, name, cwd, places, force)
    except OSError as error:
        raise GeminidsError(f"the skill cannot be copied: {error}") from None
    return Added(name, target, tuple(found))


def remove_skill(name: str, cwd: str, places: Places, *, force: bool = False) -> str:
    """Take a skill out of `<cwd>/.agents/skills`, with the word for it; returns the folder that was there."""
    if not _NAME.fullmatch(name):
        raise GeminidsError(
            f"{name!r} is not the name of a skill", hint="`geminids skills list` tells the names."
        )
    target = os.path.join(_skills_folder(cwd), name)
    try:
        with records_locked(places):
            _check_removal(name, target, places, force)
            forget(target, places)  # first: what is half removed must have no power
            _take_away(target)
    except OSError as error:
        raise GeminidsError(f"{target} cannot be removed: {error}") from None
    return target


def _put(source: str, name: str, cwd: str, places: Places, force: bool) -> str:
    skills = _skills_folder(cwd)
    target = os.path.join(skills, name)
    if os.path.lexists(target) and not force:
        hint = "Replace it with --force, or take it away with `geminids skills remove`."
        raise GeminidsError(f"{target} is there already", hint=hint)
    if os.path.realpath(source) == os.path.realpath(target):
        vouch(Record(target, look_at(target), source), places)  # no copy: the owner's word for what is there
        return target
    if f"{skills}{os.sep}".startswith(f"{os.path.realpath(source)}{os.sep}"):
        raise GeminidsError(f"{target} would lie within {source}", hint="Name another folder with --cwd.")
    os.makedirs(skills, exist_ok=True)
    if os.path.realpath(skills) != skills:
        raise GeminidsError(
            f"{skills} is a link, or lies behind one", hint="Make it a folder of the workspace."
        )
    _sweep(skills)
    draft = os.path.join(skills, f"{_DRAFT}{os.urandom(4).hex()}")
    try:
        copy_tree(source, draft)
        tree = look_at(draft)  # of the copy, not of the source: that may change meanwhile
        vouch(Record(target, tree, source), places)
        _take_away(target)
        os.rename(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _check_removal(name: str, target: str, places: Places, force: bool) -> None:
    there, record = os.path.lexists(target), record_of(target, places)
    if not there and record is None:
        raise GeminidsError(f"there is no skill {name!r} in {os.path.dirname(target)}")
    if not there or force:
        return
    if record is None:
        hint = "It may be part of the project. Remove it all the same with --force."
        raise GeminidsError(f"{target} was not put there by `geminids skills add`", hint=hint)
    if not is_vouched(target, places):
        hint = "Its changes would be lost. Remove it all the same with --force."
        raise GeminidsError(f"{target} has changed since it was added", hint=hint)


def _take_away(target: str) -> None:
    """Out of the CLI's sight in one step, then away."""
    if os.path.islink(target) or os.path.isfile(target):
        os.unlink(target)
    elif os.path.isdir(target):
        aside = os.path.join(os.path.dirname(target), f"{_DRAFT}{os.urandom(4).hex()}")
        os.rename(target, aside)
        shutil.rmtree(aside)


def _sweep(skills: str) -> None:
    """Drafts of adds that were killed; nobody else is at work, for we hold the lock."""
    for name in os.listdir(skills):
        if name.startswith(_DRAFT):
            shutil.rmtree(os.path.join(skills, name), ignore_errors=True)


def _skills_folder(cwd: str | Path) -> str:
    if not os.path.isdir(cwd):
        raise GeminidsError(f"{cwd} is not a folder", hint="Name a folder with --cwd.")
    return os.path.join(os.path.realpath(cwd), ".agents", "skills")
