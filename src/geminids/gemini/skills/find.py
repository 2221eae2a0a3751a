"""The agent skills that the CLI sees, tier by tier: which one wins, which is shadowed, which is turned off."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from geminids.gemini.locate.cli import Gemini
from geminids.gemini.settings_file import Settings

if TYPE_CHECKING:
    from geminids.gemini.skills.file import SkillHead

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
# Low to high: of two skills with one name, the later tier's wins.
TIERS: tuple[Tier, ...] = ("built-in", "extension", "user", "user-agents", "workspace", "workspace-agents")

_FILE = "SKILL.md"
_PASSED_OVER = ("node_modules", ".git")
# The file names of a Mac have no case, and the CLI's search there takes any (glob's `nocase`).
_ANY_CASE = sys.platform == "darwin"


class Skill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One skill as the CLI sees it. `off` names the setting that turns it off."""

    name: str
    description: str
    file: str
    tier: Tier
    extension: str | None = None
    shadowed_by: str | None = None
    """The file of the skill that is taken in its place; between two of one tier that is not certain."""
    off: str | None = None
    sure: bool = True
    """False where its name is written so oddly that the CLI may read another one."""

    @property
    def folder(self) -> str:
        return os.path.dirname(self.file)

    @property
    def wins(self) -> bool:
        """Whether it is the one that its name stands for."""
        return self.shadowed_by is None


def find_skills(
    cwd: str | Path, home: Path, *, settings: Settings | None = None, built_in: Path | None = None
) -> tuple[Skill, ...]:
    """Every skill that a run in `cwd` looks at, lowest tier first; `home` is the one that holds `.gemini`.

    `settings` are the home's own: by default the CLI does not read the folder's.
    """
    here = os.path.realpath(cwd)
    found: list[Skill] = []
    if built_in is not None:
        found += _in_folder(built_in, "built-in")
    found += _of_extensions(home, here, settings or {})
    found += _in_folder(home / ".gemini/skills", "user")
    found += _in_folder(home / ".agents/skills", "user-agents")
    for folder, tier in _workspace_folders(here, home):
        found += _in_folder(folder, tier)
    return _with_switches(_with_winners(found), settings or {})


def workspace_skills(cwd: str | Path, *, home: Path | None = None) -> tuple[Skill, ...]:
    """The skills that lie in the folder itself. Where that folder is `home`, they are the user's, and none are told.

    Also told are those that the CLI may see though we cannot read their name: then `name` is empty, `sure` False.
    """
    return tuple(
        _skill(head, file, tier)
        for folder, tier in _workspace_folders(os.path.realpath(cwd), home)
        for file, head in _heads(folder)
        if head.why is None or not head.sure
    )


def _workspace_folders(here: str, home: Path | None) -> list[tuple[str, Tier]]:
    if home is not None and here == os.path.realpath(home):
        return []
    folders: list[tuple[str, Tier]] = [
        (os.path.join(here, ".gemini", "skills"), "workspace"),
        (os.path.join(here, ".agents", "skills"), "workspace-agents"),
    ]
    return [(folder, tier) for folder, tier in folders if _listed(folder)]


def built_in_folder(gemini: Gemini) -> Path:
    """Where a CLI keeps the skills that it brings."""
    entry = Path(os.path.realpath(gemini.entry))
    if entry.parent.name == "bundle":
        return entry.parent / "builtin"
    return entry.parent.parent.parent / "gemini-cli-core/dist/src/skills/builtin"


def skill_files(folder: str | Path) -> Iterator[str]:
    """What the CLI's search finds in a skills folder: `SKILL.md` and `*/SKILL.md`, by links too, hidden ones not."""
    folder = os.fspath(folder)
    try:
        # libuv sorts a listing by bytes and the CLI's glob goes through it backwards, so that of two skills of one
        # name in one folder the first in the alphabet wins; mostly, for its lookups run side by side.
        names = sorted(os.listdir(folder), key=os.fsencode, reverse=True)
    except OSError:
        return
    yield from _named(folder, names)
    for name in names:
        if name.startswith(".") or name in _PASSED_OVER:
            continue
        inner = os.path.join(folder, name)
        if _ANY_CASE:
            yield from _named(inner, _listed(inner))
        elif os.path.lexists(os.path.join(inner, _FILE)):
            yield os.path.join(inner, _FILE)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def is_skill_file(name: str) -> bool:
    """Whether the CLI's search takes a file of this name."""
    return name.lower() == _FILE.lower() if _ANY_CASE else name == _FILE


def _named(folder: str, names: Iterable[str]) -> Iterator[str]:
    yield from (os.path.join(folder, name) for name in names if is_skill_file(name))


def _heads(folder: str | Path) -> Iterator[tuple[str, SkillHead]]:
    from geminids.gemini.skills.file import read_skill  # imported late: most folders have no skills

    for file in skill_files(folder):
        yield file, read_skill(file)


def _in_folder(folder: str | Path, tier: Tier) -> list[Skill]:
    return [_skill(head, file, tier) for file, head in _heads(folder) if head.why is None]


def _skill(head: SkillHead, file: str, tier: Tier) -> Skill:
    return Skill(name=head.name, description=head.description, file=file, tier=tier, sure=head.sure)


def _of_extensions(home: Path, cwd: str, settings: Settings) -> Iterator[Skill]:
    if not os.path.isdir(home / ".gemini/extensions"):
        return
    from geminids.gemini.skills.extensions import active_extensions, filled_in

    for extension in active_extensions(home / ".gemini/extensions", cwd, settings):
        values = {"extensionPath": str(extension.path), "workspacePath": cwd}
        for skill in _in_folder(extension.path / "skills", "extension"):
            yield msgspec.structs.replace(
                skill,
                extension=extension.name,
                name=filled_in(skill.name, values),
                description=filled_in(skill.description, values),
            )


def _with_winners(found: list[Skill]) -> list[Skill]:
    winners = {skill.name: skill.file for skill in found}
    return [
        skill if winners[skill.name] == skill.file
        else msgspec.structs.replace(skill, shadowed_by=winners[skill.name])
        for skill in found
    ]  # fmt: skip


def _with_switches(found: list[Skill], settings: Settings) -> tuple[Skill, ...]:
    switches = settings.get("skills")
    switches = switches if isinstance(switches, dict) else {}
    off = "skills.enabled" if switches.get("enabled") is False else None
    disabled = switches.get("disabled")
    names = {
        name.lower() for name in (disabled if isinstance(disabled, list) else ()) if isinstance(name, str)
    }

    def switch(skill: Skill) -> str | None:
        return off or ("skills.disabled" if skill.name.lower() in names else None)

    return tuple(msgspec.structs.replace(skill, off=switch(skill)) for skill in found)
