"""Print the output of `geminids skills list`: all skills, grouped by where they are stored."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from geminids.gemini import Release
from geminids.gemini.skills.find import TIERS, Skill, Tier
from geminids.views.sanitize import one_line

__all__ = ["SkillList", "as_rows", "print_table"]

_TITLES: dict[Tier, str] = {
    "workspace-agents": "this folder, .agents/skills",
    "workspace": "this folder, .gemini/skills",
    "user-agents": "yours, {home}/.agents/skills",
    "user": "yours, {home}/.gemini/skills",
    "extension": "extensions",
    "built-in": "built in",
}
_MAX_NAME_WIDTH = 32


class SkillList(msgspec.Struct, frozen=True, kw_only=True):
    """All skills that the CLI can find, and the facts that decide which of them a run uses."""

    release: Release
    cwd: str
    home: str
    skills: tuple[Skill, ...]
    recorded: frozenset[str]
    """The folders of the skills that the user added with `geminids skills add`."""
    unchanged: frozenset[str]
    """The folders of the skills that the user added and that have not changed since they were
    added."""
    untrusted: tuple[Skill, ...]
    """The skills of the working folder that a run ignores.

    The user has not added them, or they have changed since they were added.
    """

    def why_not(self, skill: Skill) -> str | None:
        """Return why a run with default options does not use this skill; None if the run uses the
        skill."""
        if skill.shadowed_by is not None:
            return f"shadowed by {self.short(skill.shadowed_by)}"
        if skill.off is not None:
            return f"off: {skill.off}"
        if skill.file in {untrusted.file for untrusted in self.untrusted}:
            return "has changed since it was added" if skill.folder in self.recorded else "not added by you"
        return None

    def short(self, path: str) -> str:
        """Shorten a path: if it is inside the working folder or the home, return it relative to
        that folder. Otherwise return it unchanged."""
        for top, prefix in ((self.cwd, ""), (self.home, "~/")):
            if path.startswith(f"{top}{os.sep}"):
                return one_line(prefix + path[len(top) + 1 :])
        return one_line(path)


def as_rows(skill_list: SkillList) -> list[dict[str, Any]]:
    """Return the skills as JSON objects for `--json`."""
    return [
        {
            "name": skill.name,
            "description": skill.description,
            "file": skill.file,
            "tier": skill.tier,
            "extension": skill.extension,
            "wins": skill.wins,
            "shadowed_by": skill.shadowed_by,
            "off": skill.off,
            "added": skill.folder in skill_list.unchanged,
            "in_default_run": skill_list.why_not(skill) is None,
            "why_not": skill_list.why_not(skill),
        }
        for skill in skill_list.skills
    ]


def print_table(skill_list: SkillList) -> None:
    """Print the skills, those with the highest precedence first.

    A skill that a run with default options does not use is shown dimmed, with the reason.
    """
    if not skill_list.skills:
        click.echo("There are no skills. Add one: geminids skills add FOLDER")
        return
    width = min(_MAX_NAME_WIDTH, max(len(one_line(skill.name)) for skill in skill_list.skills))
    for tier in reversed(TIERS):
        members = [skill for skill in skill_list.skills if skill.tier == tier]
        if members:
            click.secho(_TITLES[tier].format(home=_tilde(skill_list.home)), bold=True)
            for skill in sorted(members, key=lambda skill: skill.name):
                for line in _lines(skill_list, skill, width):
                    click.echo(line)
    untrusted = {skill.file for skill in skill_list.untrusted}
    if any(skill.file in untrusted for skill in skill_list.skills):
        hint = "A run uses a folder's own skills only after you add them: geminids skills add"
        click.secho(hint, dim=True)


def _lines(skill_list: SkillList, skill: Skill, width: int) -> Iterator[str]:
    why = skill_list.why_not(skill)
    name = one_line(skill.name, _MAX_NAME_WIDTH) or "(no name)"
    description_width = max(20, shutil.get_terminal_size().columns - width - 5)
    description = one_line(skill.description, description_width)
    yes, no = ("✓", "✗") if "utf" in (sys.stdout.encoding or "").lower() else ("+", "-")
    mark = click.style(yes, fg="green") if why is None else click.style(no, fg="yellow")
    yield f"{mark} {name:<{width}}  {click.style(description, dim=why is not None)}"
    notes = [note for note in (why, f"from extension {skill.extension}" if skill.extension else None) if note]
    if skill.folder in skill_list.unchanged:
        notes.append("added by you")
    if notes:
        yield click.style(f"  {'':<{width}}  {', '.join(notes)}", dim=True)


def _tilde(home: str) -> str:
    return "~" if home == os.path.expanduser("~") else one_line(home)
