"""What somebody is told when the CLI asks: the folder too, which the model may name, and which "always" stays in."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from geminids.events.model import PermissionAsked
from geminids.run.warm.pool import Pool

pytestmark = pytest.mark.real


def test_the_folder_of_a_command_is_told_and_kept_apart(make_world: Any) -> None:
    """`touch made` in `src` is allowed for good: there it is not asked again, and in the chat's own folder it is."""
    world = make_world("0.61.0")
    (world.cwd / "src").mkdir()
    there = {"command": "touch made", "dir_path": "src", "description": "Makes [it]"}
    for arguments in (there, there, {"command": "touch made"}):
        world.gateway.reply(calls=[("run_shell_command", arguments)])
    world.gateway.reply(text="done")
    heard: list[PermissionAsked] = []

    def decide(asked: PermissionAsked) -> Any:
        heard.append(asked)
        return "allow_always" if len(heard) == 1 else "deny"

    async def ask() -> Any:
        async with Pool(world.options(), size=1, on_permission=decide) as pool, pool.chat() as chat:
            return await chat.ask("go")

    result = anyio.run(ask)
    assert result.outcome == "success"
    assert [(asked.command, asked.cwd) for asked in heard] == [
        ("touch made", str(world.cwd / "src")),
        ("touch made", str(world.cwd)),
    ]
    assert [(one.decision, one.by) for one in result.decisions] == [
        ("allow_always", "callback"),
        ("allow", "rule"),
        ("deny", "callback"),
    ]
    assert (world.cwd / "src" / "made").exists() and not (world.cwd / "made").exists()
