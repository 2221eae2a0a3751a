"""Copy skills to a workspace and record them as trusted, and remove them again."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import msgspec

from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.gemini.skills.file import read_skill
from geminids.gemini.skills.folder import copy_tree, scan_tree
from geminids.gemini.skills.lint import LintFinding, lint_skill
from geminids.gemini.skills.record import (
    SkillRecord,
    delete_record,
    is_trusted,
    record_of,
    records_locked,
    write_record,
)

__all__ = ["Added", "add_skill", "remove_skill"]

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# The prefix of a temporary folder. The CLI ignores names that begin with a dot, so it never reads
# an incomplete copy of a skill.
_DRAFT = ".geminids-draft-"


class Added(msgspec.Struct, frozen=True):
    """The result of `add_skill`: the name of the skill, the path of its new folder, and the
    warnings that were found in the skill.
    """

    name: str
    folder: str
    warnings: tuple[LintFinding, ...]


def add_skill(source: str, cwd: str, places: Places, *, force: bool = False) -> Added:
    """Copy a skill to `<cwd>/.agents/skills/<name>`, and record it as trusted.

    `source` is the folder of the skill, or the SKILL.md in it. If `force` is true, an existing
    skill with this name is replaced. Raises `GeminidsError` if the skill has errors, if it cannot
    be copied, or if a skill with this name exists and `force` is false.
    """
    folder = os.path.dirname(os.path.abspath(source)) if os.path.isfile(source) else os.path.abspath(source)
    file = os.path.join(folder, "SKILL.md")
    if not os.path.lexists(file):
        raise GeminidsError(
            f"the skill was not added: {folder} has no SKILL.md", hint="Give the folder of one skill."
        )
    # Do not check the name of the source folder: the copy gets the name of the skill.
    findings = lint_skill(file, in_folder=False)
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        lines = "".join(f"\n  {error.file}:{error.line}: {error.message} ({error.code})" for error in errors)
        message = f"the skill in {folder} was not added, because it has errors:{lines}"
        raise GeminidsError(message, hint="Fix the errors, then add the skill again.")
    name = read_skill(file).name
    try:
        with records_locked(places):
            target = _copy_skill(folder, name, cwd, places, force)
    except OSError as error:
        raise GeminidsError(
            f"the skill in {folder} was not added: {error}",
            hint="Check the permissions of the folders, and the free disk space.",
        ) from None
    return Added(name, target, tuple(findings))


def remove_skill(name: str, cwd: str, places: Places, *, force: bool = False) -> str:
    """Remove a skill from `<cwd>/.agents/skills`, and delete the record that it is trusted. Return
    the path of the removed folder.

    Raises `GeminidsError` if there is no such skill, or if the skill cannot be removed. Unless
    `force` is true, `GeminidsError` is also raised if the skill was not added by `add_skill`, or
    has changed since it was added.
    """
    if not _NAME.fullmatch(name):
        raise GeminidsError(
            f"{name!r} cannot be the name of a skill", hint="Run `geminids skills list` to see the names."
        )
    target = os.path.join(_skills_folder(cwd), name)
    try:
        with records_locked(places):
            _check_removal(name, target, places, force)
            delete_record(target, places)  # first: a partly removed skill must not be trusted
            _remove(target)
    except OSError as error:
        raise GeminidsError(
            f"{target} cannot be removed: {error}", hint="Check the permissions of the folder."
        ) from None
    return target


def _copy_skill(source: str, name: str, cwd: str, places: Places, force: bool) -> str:
    skills = _skills_folder(cwd)
    target = os.path.join(skills, name)
    if os.path.lexists(target) and not force:
        hint = "Use --force to replace this skill, or remove it first with `geminids skills remove`."
        raise GeminidsError(f"the skill was not added: {target} already exists", hint=hint)
    if os.path.realpath(source) == os.path.realpath(target):
        # The skill is already in this folder: only record it as trusted.
        write_record(SkillRecord(target, scan_tree(target), source), places)
        return target
    if f"{skills}{os.sep}".startswith(f"{os.path.realpath(source)}{os.sep}"):
        message = f"the skill was not added: its copy {target} would be inside its source {source}"
        raise GeminidsError(message, hint="Choose another folder with --cwd.")
    os.makedirs(skills, exist_ok=True)
    if os.path.realpath(skills) != skills:
        raise GeminidsError(
            f"the skill was not added: the path {skills} contains a symbolic link",
            hint="Replace the link with a real folder inside the workspace.",
        )
    _remove_drafts(skills)
    draft = os.path.join(skills, f"{_DRAFT}{os.urandom(4).hex()}")
    try:
        copy_tree(source, draft)
        tree = scan_tree(draft)  # scan the copy, because the source may have changed since
        write_record(SkillRecord(target, tree, source), places)
        _remove(target)
        os.rename(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _check_removal(name: str, target: str, places: Places, force: bool) -> None:
    exists, record = os.path.lexists(target), record_of(target, places)
    if not exists and record is None:
        raise GeminidsError(
            f"there is no skill {name!r} in {os.path.dirname(target)}",
            hint="Run `geminids skills list` to see the names.",
        )
    if not exists or force:
        return
    if record is None:
        hint = "The skill may be a part of the project. Use --force to remove it anyway."
        message = f"{target} was not removed: it was not added by `geminids skills add`"
        raise GeminidsError(message, hint=hint)
    if not is_trusted(target, places):
        hint = "The changes would be lost. Use --force to remove the skill anyway."
        raise GeminidsError(f"{target} was not removed: it has changed since it was added", hint=hint)


def _remove(target: str) -> None:
    """Delete a file, a link or a folder.

    A folder is first renamed to a hidden name. So the CLI never reads a half-deleted skill.
    """
    if os.path.islink(target) or os.path.isfile(target):
        os.unlink(target)
    elif os.path.isdir(target):
        hidden = os.path.join(os.path.dirname(target), f"{_DRAFT}{os.urandom(4).hex()}")
        os.rename(target, hidden)
        shutil.rmtree(hidden)


def _remove_drafts(skills: str) -> None:
    """Remove temporary folders of processes that were killed while they added a skill.

    The caller holds the lock, so no other process is using such a folder.
    """
    for name in os.listdir(skills):
        if name.startswith(_DRAFT):
            shutil.rmtree(os.path.join(skills, name), ignore_errors=True)


def _skills_folder(cwd: str | Path) -> str:
    if not os.path.isdir(cwd):
        raise GeminidsError(f"{cwd} is not a folder", hint="Choose a folder with --cwd.")
    return os.path.join(os.path.realpath(cwd), ".agents", "skills")
