"""Check all skills at a path for errors (lint), and report the skills that the CLI ignores because
they are in the wrong place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from geminids.errors import GeminidsError
from geminids.gemini.skills.file import read_skill
from geminids.gemini.skills.find import Skill, is_skill_file, skill_files
from geminids.gemini.skills.lint import LintFinding, finding, lint_skill

__all__ = ["lint_path", "shadowed_findings"]

_MAX_DEPTH = 4
_COLLECTIONS = (".gemini/skills", ".agents/skills")


def lint_path(path: str) -> list[LintFinding]:
    """Check all skills at `path` for errors, and return the findings.

    `path` is a SKILL.md, the folder of one skill, a folder of skills, or a workspace that contains
    skills. Raises `GeminidsError` if it is none of these.
    """
    path = os.path.normpath(path)
    if os.path.isfile(path):
        return _lint_file(path)
    if not os.path.isdir(path):
        raise GeminidsError(
            f"{path} does not exist", hint="Give a SKILL.md, the folder of a skill, or a folder of skills."
        )
    inner = [os.path.join(path, name) for name in _COLLECTIONS if os.path.isdir(os.path.join(path, name))]
    if inner:
        return [violation for folder in inner for violation in _lint_collection(folder)]
    if os.path.basename(os.path.abspath(path)) != "skills" and _skill_file(path):
        return _lint_folder(path)
    return list(_lint_collection(path))


def shadowed_findings(skills: Sequence[Skill]) -> Iterator[LintFinding]:
    """Yield a warning for each skill that the CLI does not use, because it uses another skill with
    the same name.
    """
    for skill in skills:
        if skill.shadowed_by is not None:
            yield finding(skill.file, 1, "shadowed", f"the CLI uses {skill.shadowed_by} for {skill.name!r}")


def _lint_file(path: str) -> list[LintFinding]:
    if is_skill_file(os.path.basename(path)):
        return lint_skill(path)
    if os.path.basename(path).lower() == "skill.md":
        return [_wrong_case(path)]
    raise GeminidsError(
        f"{path} is not a SKILL.md", hint="Give a SKILL.md, the folder of a skill, or a folder of skills."
    )


def _lint_folder(folder: str) -> list[LintFinding]:
    file = _skill_file(folder)
    assert file is not None
    return lint_skill(file) if is_skill_file(os.path.basename(file)) else [_wrong_case(file)]


def _lint_collection(folder: str) -> Iterator[LintFinding]:
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
                file,
                1,
                "shadowed",
                f"the skill in {other} has the same name {head.name!r}: the CLI uses only one of the two",
            )
    yield from _ignored_folders(folder, {os.path.dirname(file) for file in seen})


def _ignored_folders(folder: str, seen: set[str]) -> Iterator[LintFinding]:
    for name in sorted(os.listdir(folder)):
        inner = os.path.join(folder, name)
        if inner in seen or not os.path.isdir(inner):
            continue
        file = _skill_file(inner)
        if file and not is_skill_file(os.path.basename(file)):
            yield _wrong_case(file)
        elif file and name.startswith("."):
            yield finding(
                file, 1, "hidden-folder", f"the CLI ignores hidden folders such as {name}", unseen=True
            )
        elif file:
            yield finding(
                file, 1, "passed-over-folder", f"the CLI ignores folders with the name {name}", unseen=True
            )
        elif not name.startswith("."):
            nested = list(_nested_skills(inner, _MAX_DEPTH))
            yield from nested
            if not nested:
                yield finding(inner, 1, "no-skill-file", "has no SKILL.md", unseen=True)


def _nested_skills(folder: str, levels: int) -> Iterator[LintFinding]:
    for name in sorted(os.listdir(folder)) if levels else ():
        inner = os.path.join(folder, name)
        if not os.path.isdir(inner) or os.path.islink(inner):
            continue
        file = _skill_file(inner)
        if file:
            yield finding(
                file,
                1,
                "too-deep",
                "is more than one folder below the folder of skills",
                unseen=True,
            )
        else:
            yield from _nested_skills(inner, levels - 1)


def _skill_file(folder: str) -> str | None:
    """Return the path of the SKILL.md in a folder. If there is none, return the path of a file
    whose name differs only in upper and lower case, such as `skill.md`.

    Return None if there is no such file, or if the folder cannot be read.
    """
    try:
        names = [name for name in os.listdir(folder) if name.lower() == "skill.md"]
    except OSError:
        return None
    names.sort(key=lambda name: name != "SKILL.md")
    return os.path.join(folder, names[0]) if names else None


def _wrong_case(file: str) -> LintFinding:
    return finding(file, 1, "wrong-case", "must be named exactly SKILL.md", unseen=True)
