"""The output of `geminids skills list`: skills by tier, highest first."""

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

__all__ = ["Listing", "as_rows", "print_table"]

_TITLES: dict[Tier, str] = {
    "workspace-agents": "this folder, .agents/skills",
    "workspace": "this folder, .gemini/skills",
    "user-agents": "yours, {home}/.agents/skills",
    "user": "yours, {home}/.gemini/skills",
    "extension": "extensions",
    "built-in": "built in",
}
_WIDEST_NAME = 32


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The data of the list."""

    release: Release
    cwd: str
    home: str
    skills: tuple[Skill, ...]
    recorded: frozenset[str]
    """Folders that the user added."""
    vouched: frozenset[str]
    """Added folders that have not changed since."""
    untrusted: tuple[Skill, ...]

    def why_not(self, skill: Skill) -> str | None:
        """Why a default run does not use this skill; None if it does."""
        if skill.shadowed_by is not None:
            return f"shadowed by {self.short(skill.shadowed_by)}"
        if skill.off is not None:
            return f"off: {skill.off}"
        if skill.file in {untrusted.file for untrusted in self.untrusted}:
            return "has changed since it was added" if skill.folder in self.recorded else "not added by you"
        return None

    def short(self, path: str) -> str:
        """The path relative to the working folder or the home, if it is inside one of them."""
        for top, prefix in ((self.cwd, ""), (self.home, "~/")):
            if path.startswith(f"{top}{os.sep}"):
                return one_line(prefix + path[len(top) + 1 :])
        return one_line(path)


def as_rows(listing: Listing) -> list[dict[str, Any]]:
    """The skills for `--json`."""
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
            "added": skill.folder in listing.vouched,
            "in_default_run": listing.why_not(skill) is None,
            "why_not": listing.why_not(skill),
        }
        for skill in listing.skills
    ]


def print_table(listing: Listing) -> None:
    """Print one block per tier. A skill that a default run does not use is dim, with the reason."""
    if not listing.skills:
        click.echo("There are no skills. Add one: geminids skills add FOLDER")
        return
    width = min(_WIDEST_NAME, max(len(one_line(skill.name)) for skill in listing.skills))
    for tier in reversed(TIERS):
        members = [skill for skill in listing.skills if skill.tier == tier]
        if members:
            click.secho(_TITLES[tier].format(home=_tilde(listing.home)), bold=True)
            for skill in sorted(members, key=lambda skill: skill.name):
                for line in _lines(listing, skill, width):
                    click.echo(line)
    untrusted = {skill.file for skill in listing.untrusted}
    if any(skill.file in untrusted for skill in listing.skills):
        hint = "A run uses a folder's own skills only after you add them: geminids skills add"
        click.secho(hint, dim=True)


def _lines(listing: Listing, skill: Skill, width: int) -> Iterator[str]:
    why = listing.why_not(skill)
    name = one_line(skill.name, _WIDEST_NAME) or "(no name)"
    room = max(20, shutil.get_terminal_size().columns - width - 5)
    description = one_line(skill.description, room)
    yes, no = ("✓", "✗") if "utf" in (sys.stdout.encoding or "").lower() else ("+", "-")
    mark = click.style(yes, fg="green") if why is None else click.style(no, fg="yellow")
    yield f"{mark} {name:<{width}}  {click.style(description, dim=why is not None)}"
    notes = [note for note in (why, f"of {skill.extension}" if skill.extension else None) if note]
    if skill.folder in listing.vouched:
        notes.append("added by you")
    if notes:
        yield click.style(f"  {'':<{width}}  {', '.join(notes)}", dim=True)


def _tilde(home: str) -> str:
    return "~" if home == os.path.expanduser("~") else one_line(home)
