"""Find the agent skills that the CLI reads when it runs in a folder, and determine which of these
skills the CLI uses.

The CLI does not use a skill that is turned off, or that another skill with the same name replaces.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from geminids.gemini.locate.identify import Gemini
from geminids.gemini.settings_file import Settings
from geminids.gemini.skills.extensions import active_extensions, substitute_variables
from geminids.gemini.skills.file import SkillHead, read_skill

__all__ = [
    "TIERS",
    "Skill",
    "Tier",
    "built_in_folder",
    "find_skills",
    "is_skill_file",
    "skill_files",
    "workspace_skills",
]

Tier = Literal["built-in", "extension", "user", "user-agents", "workspace", "workspace-agents"]
# A tier is a kind of place for skills. The tiers are listed by precedence, the lowest first: of two
# skills with the same name, the CLI uses the one in the later tier.
TIERS: tuple[Tier, ...] = ("built-in", "extension", "user", "user-agents", "workspace", "workspace-agents")

_FILE = "SKILL.md"
_IGNORED_FOLDERS = ("node_modules", ".git")
# On macOS, file names are not case-sensitive. There, the CLI also accepts a SKILL.md whose name is
# in lower case or mixed case (glob's `nocase`).
_ANY_CASE = sys.platform == "darwin"


class Skill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent skill that the CLI finds. `tier` is the kind of place where it was found, such as
    `user` or `workspace`.

    `off` is the name of the setting that turns the skill off; None if it is not turned off.
    """

    name: str
    description: str
    file: str
    tier: Tier
    extension: str | None = None
    shadowed_by: str | None = None
    """The file of the skill that the CLI uses instead of this one, because both have the same name.
    None if no other skill replaces this one.

    If both skills have the same `tier`, the CLI may use either of them.
    """
    off: str | None = None
    sure: bool = True
    """False if the CLI might read a name from the file that differs from `name`."""

    @property
    def folder(self) -> str:
        return os.path.dirname(self.file)

    @property
    def wins(self) -> bool:
        """Whether this skill is the one that the CLI uses for its name. False if another skill with
        the same name replaces this one.
        """
        return self.shadowed_by is None


def find_skills(
    cwd: str | Path, home: Path, *, settings: Settings | None = None, built_in: Path | None = None
) -> tuple[Skill, ...]:
    """Return all skills that the CLI finds when it runs in `cwd`. Of two skills with the same name,
    the CLI uses the later one in this list.

    `home` is the folder that contains `.gemini`. `settings` are the CLI's settings in this home.
    The settings of the workspace are not used, because the CLI does not read them by default.
    `built_in` is the folder with the skills that come with the CLI. If it is None, these skills are
    left out.
    """
    workspace = os.path.realpath(cwd)
    skills: list[Skill] = []
    if built_in is not None:
        skills += _in_folder(built_in, "built-in")
    skills += _of_extensions(home, workspace, settings or {})
    skills += _in_folder(home / ".gemini/skills", "user")
    skills += _in_folder(home / ".agents/skills", "user-agents")
    for folder, tier in _workspace_folders(workspace, home):
        skills += _in_folder(folder, tier)
    return _with_switches(_with_winners(skills), settings or {})


def workspace_skills(cwd: str | Path, *, home: Path | None = None) -> tuple[Skill, ...]:
    """Return the skills that are stored in the workspace `cwd`, in `.gemini/skills` and
    `.agents/skills`.

    If `cwd` is `home`, the result is empty, because the skills there are the user's own skills.

    The result also contains skills whose name the CLI may be able to read, although geminids
    cannot. For these skills, `name` is empty and `sure` is False.
    """
    return tuple(
        _skill(head, file, tier)
        for folder, tier in _workspace_folders(os.path.realpath(cwd), home)
        for file, head in _heads(folder)
        if head.why is None or not head.sure
    )


def _workspace_folders(workspace: str, home: Path | None) -> list[tuple[str, Tier]]:
    if home is not None and workspace == os.path.realpath(home):
        return []
    folders: list[tuple[str, Tier]] = [
        (os.path.join(workspace, ".gemini", "skills"), "workspace"),
        (os.path.join(workspace, ".agents", "skills"), "workspace-agents"),
    ]
    return [(folder, tier) for folder, tier in folders if _list_folder(folder)]


def built_in_folder(gemini: Gemini) -> Path:
    """Return the folder with the skills that are a part of this Gemini CLI."""
    entry = Path(os.path.realpath(gemini.entry))
    if entry.parent.name == "bundle":
        return entry.parent / "builtin"
    return entry.parent.parent.parent / "gemini-cli-core/dist/src/skills/builtin"


def skill_files(folder: str | Path) -> Iterator[str]:
    """Yield the paths of the skill files that the CLI finds in a folder of skills: `SKILL.md` and
    `*/SKILL.md`.

    Links are followed. Hidden folders are skipped.
    """
    folder = os.fspath(folder)
    try:
        # The CLI reads the names in reverse order of their bytes. If two skills have the same name,
        # the last one that it reads wins. This is usually the first by alphabet, but not always,
        # because the CLI reads the files concurrently.
        names = sorted(os.listdir(folder), key=os.fsencode, reverse=True)
    except OSError:
        return
    yield from _skill_files_in(folder, names)
    for name in names:
        if name.startswith(".") or name in _IGNORED_FOLDERS:
            continue
        inner = os.path.join(folder, name)
        if _ANY_CASE:
            yield from _skill_files_in(inner, _list_folder(inner))
        elif os.path.lexists(os.path.join(inner, _FILE)):
            yield os.path.join(inner, _FILE)


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def is_skill_file(name: str) -> bool:
    """Return whether the CLI accepts a file with this name as a SKILL.md. On macOS, upper and lower
    case do not matter.
    """
    return name.lower() == _FILE.lower() if _ANY_CASE else name == _FILE


def _skill_files_in(folder: str, names: Iterable[str]) -> Iterator[str]:
    yield from (os.path.join(folder, name) for name in names if is_skill_file(name))


def _heads(folder: str | Path) -> Iterator[tuple[str, SkillHead]]:
    for file in skill_files(folder):
        yield file, read_skill(file)


def _in_folder(folder: str | Path, tier: Tier) -> list[Skill]:
    return [_skill(head, file, tier) for file, head in _heads(folder) if head.why is None]


def _skill(head: SkillHead, file: str, tier: Tier) -> Skill:
    return Skill(name=head.name, description=head.description, file=file, tier=tier, sure=head.sure)


def _of_extensions(home: Path, cwd: str, settings: Settings) -> Iterator[Skill]:
    if not os.path.isdir(home / ".gemini/extensions"):
        return
    for extension in active_extensions(home / ".gemini/extensions", cwd, settings):
        values = {"extensionPath": str(extension.path), "workspacePath": cwd}
        for skill in _in_folder(extension.path / "skills", "extension"):
            yield msgspec.structs.replace(
                skill,
                extension=extension.name,
                name=substitute_variables(skill.name, values),
                description=substitute_variables(skill.description, values),
            )


def _with_winners(skills: list[Skill]) -> list[Skill]:
    winners = {skill.name: skill.file for skill in skills}
    return [
        skill if winners[skill.name] == skill.file
        else msgspec.structs.replace(skill, shadowed_by=winners[skill.name])
        for skill in skills
    ]  # fmt: skip


def _with_switches(skills: list[Skill], settings: Settings) -> tuple[Skill, ...]:
    switches = settings.get("skills")
    switches = switches if isinstance(switches, dict) else {}
    off = "skills.enabled" if switches.get("enabled") is False else None
    disabled = switches.get("disabled")
    names = {
        name.lower() for name in (disabled if isinstance(disabled, list) else ()) if isinstance(name, str)
    }

    def switch(skill: Skill) -> str | None:
        return off or ("skills.disabled" if skill.name.lower() in names else None)

    return tuple(msgspec.structs.replace(skill, off=switch(skill)) for skill in skills)
