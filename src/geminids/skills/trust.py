"""Which skills of a workspace have no power in a run that does not trust it."""

from __future__ import annotations

from pathlib import Path

from geminids.config.places import Places
from geminids.skills.find import Skill, workspace_skills

__all__ = ["untrusted_skills"]


def untrusted_skills(cwd: str | Path, places: Places, *, home: Path | None = None) -> tuple[Skill, ...]:
    """The skills to turn off by name, since nobody vouches for what the CLI would take. Fast where there are none.

    One without a certain name (`sure` is False) cannot be turned off by it: all skills must be, or the run refused.
    """
    found = workspace_skills(cwd, home=home)
    if not found:
        return ()
    from geminids.skills.record import vouched_skills

    vouched = vouched_skills(cwd, places)
    strange = [skill for skill in found if skill.folder not in vouched]
    # What was added lies in .agents, which outranks .gemini: there, a namesake harms nobody.
    strange_names = {skill.name.lower() for skill in strange if skill.tier == "workspace-agents"}
    added_names = {skill.name for skill in found if skill.folder in vouched}
    return tuple(
        skill
        for skill in strange
        if skill.tier == "workspace-agents"
        or not skill.sure
        or skill.name not in added_names
        or skill.name.lower() in strange_names
    )
