"""The skills of a private home: those of this run, and the user's own beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from geminids.launch.refused import Refused
from geminids.skills.file import dialect_of, read_skill
from geminids.toolchain.releases import release_of

__all__ = ["skill_links"]


def skill_links(home: Path, folders: Sequence[str]) -> dict[str, str]:
    """What is to be linked (place in the private home: target) so that a run has these skills and the user's own.

    Of two with one name the later given wins, and any given one wins over the user's: that one is left out, for the
    CLI would choose by its own rules. Raises `Refused` for a folder that holds no skill.
    """
    given = {_name(folder): os.path.abspath(folder) for folder in folders}
    links: dict[str, str] = {}
    for tier in (".gemini/skills", ".agents/skills"):
        for entry in _entries(home / tier):
            if _name_of_entry(home / tier / entry) not in given:
                links[f"{tier}/{entry}"] = str(home / tier / entry)
    for entry in _entries(home / ".agents"):
        if entry != "skills":
            links[f".agents/{entry}"] = str(home / ".agents" / entry)
    for folder in given.values():
        links[_free_place(folder, links)] = folder
    return links


def _name(folder: str) -> str:
    file = os.path.join(folder, "SKILL.md")
    head = read_skill(file, dialect_of(release_of(None)))
    if head.why is not None:
        raise Refused(
            "bad_option",
            f"skills: the CLI would not see {file}: {head.why}",
            f"`geminids skills lint {folder}` tells what is wrong.",
        )
    return head.name


def _name_of_entry(entry: Path) -> str | None:
    """The name of a user's skill, whether it is a folder or the SKILL.md at the top."""
    file = entry if entry.name == "SKILL.md" else entry / "SKILL.md"
    head = read_skill(str(file), dialect_of(release_of(None)))
    return head.name if head.why is None else None


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _free_place(folder: str, taken: dict[str, str]) -> str:
    """A place of the folder's own name, where that is free and the CLI does not pass over it."""
    name = os.path.basename(folder).lstrip(".") or "skill"
    places = (f".gemini/skills/{name}{more}" for more in ("", *(f"-{n}" for n in range(2, len(taken) + 4))))
    return next(place for place in places if place not in taken and not place.endswith("/node_modules"))
