"""Lint every skill at a path, and report skills that the CLI ignores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from geminids.errors import GeminidsError
from geminids.gemini.skills.file import read_skill
from geminids.gemini.skills.find import Skill, is_skill_file, skill_files
from geminids.gemini.skills.lint import Finding, finding, lint_skill

__all__ = ["lint_path", "shadowed_findings"]

_MAX_DEPTH = 4
_COLLECTIONS = (".gemini/skills", ".agents/skills")


def lint_path(path: str) -> list[Finding]:
    """Lint a SKILL.md, the folder of one skill, a folder of skills, or a workspace with skills."""
    path = os.path.normpath(path)
    if os.path.isfile(path):
        return _lint_file(path)
    if not os.path.isdir(path):
        raise GeminidsError(
            f"{path} does not exist", hint="Give a SKILL.md, a skill's folder or a folder of skills."
        )
    inner = [os.path.join(path, name) for name in _COLLECTIONS if os.path.isdir(os.path.join(path, name))]
    if inner:
        return [violation for folder in inner for violation in _lint_collection(folder)]
    if os.path.basename(os.path.abspath(path)) != "skills" and _skill_file(path):
        return _lint_folder(path)
    return list(_lint_collection(path))


def shadowed_findings(skills: Sequence[Skill]) -> Iterator[Finding]:
    """Yield a warning for each skill that another skill with the same name replaces."""
    for skill in skills:
        if skill.shadowed_by is not None:
            yield finding(skill.file, 1, "shadowed", f"the CLI uses {skill.shadowed_by} for {skill.name!r}")


def _lint_file(path: str) -> list[Finding]:
    if is_skill_file(os.path.basename(path)):
        return lint_skill(path)
    if os.path.basename(path).lower() == "skill.md":
        return [_wrong_case(path)]
    raise GeminidsError(
        f"{path} is not a SKILL.md", hint="Give a SKILL.md, a skill's folder or a folder of skills."
    )


def _lint_folder(folder: str) -> list[Finding]:
    file = _skill_file(folder)
    assert file is not None
    return lint_skill(file) if is_skill_file(os.path.basename(file)) else [_wrong_case(file)]


def _lint_collection(folder: str) -> Iterator[Finding]:
    seen = list(skill_files(folder))
    owners: dict[str, str] = {}
    for file in seen:
        head = read_skill(file)
        if head.why is None:
            owners[head.name] = file
    for file in seen:
        yield from lint_skill(file, in_folder=os.path.dirname(file) != folder)
        head = read_skill(file)
        if head.why is None and owners[head.name] != file:
            other = os.path.basename(os.path.dirname(owners[head.name]))
            yield finding(
                file, 1, "shadowed", f"{other} also has the name {head.name!r}: the CLI uses one of them"
            )
    yield from _ignored_folders(folder, {os.path.dirname(file) for file in seen})


def _ignored_folders(folder: str, seen: set[str]) -> Iterator[Finding]:
    for name in sorted(os.listdir(folder)):
        inner = os.path.join(folder, name)
        if inner in seen or not os.path.isdir(inner):
            continue
        file = _skill_file(inner)
        if file and not is_skill_file(os.path.basename(file)):
            yield _wrong_case(file)
        elif file and name.startswith("."):
            yield finding(file, 1, "hidden-folder", f"the folder {name} is hidden", unseen=True)
        elif file:
            yield finding(file, 1, "passed-over-folder", f"the folder is named {name}", unseen=True)
        elif not name.startswith("."):
            nested = list(_nested_skills(inner, _MAX_DEPTH))
            yield from nested
            if not nested:
                yield finding(inner, 1, "no-skill-file", "has no SKILL.md", unseen=True)


def _nested_skills(folder: str, levels: int) -> Iterator[Finding]:
    for name in sorted(os.listdir(folder)) if levels else ():
        inner = os.path.join(folder, name)
        if not os.path.isdir(inner) or os.path.islink(inner):
            continue
        file = _skill_file(inner)
        if file:
            yield finding(
                file, 1, "too-deep", "is too deep, the CLI searches only one folder deep", unseen=True
            )
        else:
            yield from _nested_skills(inner, levels - 1)


def _skill_file(folder: str) -> str | None:
    """Return the SKILL.md of a folder, else a file that differs only in case."""
    try:
        names = [name for name in os.listdir(folder) if name.lower() == "skill.md"]
    except OSError:
        return None
    names.sort(key=lambda name: name != "SKILL.md")
    return os.path.join(folder, names[0]) if names else None


def _wrong_case(file: str) -> Finding:
    return finding(file, 1, "wrong-case", "must be named exactly SKILL.md", unseen=True)
