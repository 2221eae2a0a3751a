"""The agent skills that the CLI sees, tier by tier: which one wins, which is shadowed, which is turned off."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from geminids.toolchain.gemini import Gemini
from geminids.toolchain.releases import Release
from geminids.toolchain.settings import Settings, SettingsProblem, merge, read_settings

if TYPE_CHECKING:
    from geminids.skills.file import Dialect, SkillHead

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
    cwd: str | Path,
    home: Path,
    release: Release,
    *,
    settings: Settings | None = None,
    built_in: Path | None = None,
    workspace_settings: bool = True,
) -> tuple[Skill, ...]:
    """Every skill that a trusted run in `cwd` looks at, lowest tier first; `home` is the one that holds `.gemini`.

    `settings` are the home's own; `workspace_settings`: the folder's count too. A release without skills has none.
    """
    if not release.skills:
        return ()
    from geminids.skills.file import dialect_of

    here, dialect = os.path.realpath(cwd), dialect_of(release)
    found: list[Skill] = []
    if built_in is not None and dialect.forgiving:
        found += _in_folder(built_in, "built-in", dialect)
    found += _of_extensions(home, here, dialect, settings or {})
    found += _in_folder(home / ".gemini/skills", "user", dialect)
    if dialect.agents:
        found += _in_folder(home / ".agents/skills", "user-agents", dialect)
    for folder, tier in _workspace_folders(here, release, home):
        found += _in_folder(folder, tier, dialect)
    switches = settings or {}
    if workspace_settings and here != os.path.realpath(home):
        switches = _merged(switches, here)
    return _with_switches(_with_winners(found), switches, dialect)


def workspace_skills(cwd: str | Path, release: Release, *, home: Path | None = None) -> tuple[Skill, ...]:
    """The skills that lie in the folder itself. Where that folder is `home`, they are the user's, and none are told.

    Also told are those that the CLI may see though we cannot read their name: then `name` is empty, `sure` False.
    """
    folders = _workspace_folders(os.path.realpath(cwd), release, home)
    if not folders:
        return ()
    from geminids.skills.file import dialect_of  # imported late: most folders have no skills

    dialect = dialect_of(release)
    return tuple(
        _skill(head, file, tier)
        for folder, tier in folders
        for file, head in _heads(folder, dialect)
        if head.why is None or not head.sure
    )


def _workspace_folders(here: str, release: Release, home: Path | None) -> list[tuple[str, Tier]]:
    if not release.skills or (home is not None and here == os.path.realpath(home)):
        return []
    folders: list[tuple[str, Tier]] = [(os.path.join(here, ".gemini", "skills"), "workspace")]
    if release.agents_skills_dir:
        folders.append((os.path.join(here, ".agents", "skills"), "workspace-agents"))
    return [(folder, tier) for folder, tier in folders if _listed(folder)]


def built_in_folder(gemini: Gemini) -> Path:
    """Where a CLI keeps the skills that it brings."""
    entry = Path(os.path.realpath(gemini.entry))
    if entry.parent.name == "bundle":
        return entry.parent / "builtin"
    return entry.parent.parent.parent / "gemini-cli-core/dist/src/skills/builtin"


def skill_files(folder: str | Path, dialect: Dialect) -> Iterator[str]:
    """What the CLI's search finds in a skills folder: `SKILL.md` and `*/SKILL.md`, by links too, hidden ones not."""
    folder = os.fspath(folder)
    try:
        # libuv sorts a listing by bytes and the CLI's glob goes through it backwards, so that of two skills of one
        # name in one folder the first in the alphabet wins; mostly, for its lookups run side by side (seen on 0.32.1).
        names = sorted(os.listdir(folder), key=os.fsencode, reverse=True)
    except OSError:
        return
    if dialect.at_the_top:
        yield from _named(folder, names)
    for name in names:
        if name.startswith(".") or (dialect.cleaned and name in _PASSED_OVER):
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


def _heads(folder: str | Path, dialect: Dialect) -> Iterator[tuple[str, SkillHead]]:
    from geminids.skills.file import read_skill

    for file in skill_files(folder, dialect):
        yield file, read_skill(file, dialect)


def _in_folder(folder: str | Path, tier: Tier, dialect: Dialect) -> list[Skill]:
    return [_skill(head, file, tier) for file, head in _heads(folder, dialect) if head.why is None]


def _skill(head: SkillHead, file: str, tier: Tier) -> Skill:
    return Skill(name=head.name, description=head.description, file=file, tier=tier, sure=head.sure)


def _of_extensions(home: Path, cwd: str, dialect: Dialect, settings: Settings) -> Iterator[Skill]:
    if not os.path.isdir(home / ".gemini/extensions"):
        return
    from geminids.skills.extensions import active_extensions, filled_in

    for extension in active_extensions(home / ".gemini/extensions", cwd, settings):
        for skill in _in_folder(extension.path / "skills", "extension", dialect):
            changes: dict[str, Any] = {"extension": extension.name}
            if dialect.filled:
                values = {"extensionPath": str(extension.path), "workspacePath": cwd}
                changes["name"] = filled_in(skill.name, values)
                changes["description"] = filled_in(skill.description, values)
            yield msgspec.structs.replace(skill, **changes)


def _with_winners(found: list[Skill]) -> list[Skill]:
    winners = {skill.name: skill.file for skill in found}
    return [
        skill if winners[skill.name] == skill.file
        else msgspec.structs.replace(skill, shadowed_by=winners[skill.name])
        for skill in found
    ]  # fmt: skip


def _merged(settings: Settings, cwd: str) -> Settings:
    """The home's settings with the workspace's over them; lists of names are joined."""
    file = Path(cwd, ".gemini/settings.json")
    try:
        theirs = read_settings(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError, SettingsProblem):
        return settings
    both = merge(settings, theirs)
    disabled = [*_names(settings), *_names(theirs)]
    return merge(both, {"skills": {"disabled": disabled}}) if disabled else both


def _names(settings: Settings) -> list[str]:
    skills = settings.get("skills")
    names = skills.get("disabled") if isinstance(skills, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _with_switches(found: list[Skill], settings: Settings, dialect: Dialect) -> tuple[Skill, ...]:
    off = _all_off(settings, dialect)
    names = set(_names(settings))
    if dialect.at_the_top:
        names = {name.lower() for name in names}

    def switch(skill: Skill) -> str | None:
        name = skill.name.lower() if dialect.at_the_top else skill.name
        return off or ("skills.disabled" if name in names else None)

    return tuple(msgspec.structs.replace(skill, off=switch(skill)) for skill in found)


def _all_off(settings: Settings, dialect: Dialect) -> str | None:
    skills, experimental = settings.get("skills"), settings.get("experimental")
    if isinstance(experimental, dict) and experimental.get("skills") is True and not dialect.agents:
        return None
    if not dialect.forgiving:
        return "experimental.skills"  # off unless it was turned on (0.24, 0.25)
    enabled = skills.get("enabled") if isinstance(skills, dict) else None
    return "skills.enabled" if enabled is False else None
