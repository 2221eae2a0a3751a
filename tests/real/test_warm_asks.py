"""What somebody is told when the CLI asks: the folder too, which the model may name, and which "always" stays in."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from geminids.events.model import Notice, PermissionAsked, ToolFinished
from geminids.options import Permissions
from geminids.warm.pool import Pool

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


def test_a_folder_that_can_be_read_in_two_ways_is_never_the_wrong_one(make_world: Any) -> None:
    """`sub] (x` is not taken for `sub`; where both could be meant, no folder is told, and "always" is not to be had."""
    world = make_world("0.61.0")
    (world.cwd / "sub").mkdir()
    (world.cwd / "odd] (x").mkdir()
    (world.cwd / "sub] (x").mkdir()
    for folder in ("odd] (x", "sub] (x"):
        arguments = {"command": "touch made", "dir_path": folder, "description": "y"}
        world.gateway.reply(calls=[("run_shell_command", arguments)])
    world.gateway.reply(text="done")
    heard: list[PermissionAsked] = []

    def decide(asked: PermissionAsked) -> Any:
        heard.append(asked)
        return "allow"

    async def ask() -> Any:
        async with Pool(world.options(), size=1, on_permission=decide) as pool, pool.chat() as chat:
            return await chat.ask("go")

    assert anyio.run(ask).outcome == "success"
    assert [(asked.cwd, asked.always is None, asked.details) for asked in heard] == [
        (str(world.cwd / "odd] (x"), False, None),
        (None, True, "[in sub] (x] (y)"),
    ]
    assert (world.cwd / "odd] (x" / "made").exists() and (world.cwd / "sub] (x" / "made").exists()


def test_a_command_that_a_rule_denies_says_which(make_world: Any) -> None:
    """Denied with its input and our reason, and bad arguments are a failure of their own, though nobody was asked."""
    world = make_world("0.61.0")
    denied, outside = {"command": "rm -rf x"}, {"file_path": "../esc.txt", "content": "x"}
    world.gateway.reply(calls=[("run_shell_command", denied), ("write_file", outside)])
    world.gateway.reply(text="done")
    rules = Permissions(shell="allow", deny_commands=("rm",))

    async def ask() -> list[Any]:
        options = world.options(permissions=rules)
        async with Pool(options, size=1, on_permission=lambda _: "allow") as pool, pool.chat() as chat:
            return [event async for event in chat.send("go")]

    events = anyio.run(ask)
    first, second = (event for event in events if isinstance(event, ToolFinished))
    assert (first.input, first.status) == (denied, "denied")
    assert (first.error or "").startswith("'rm' is in deny_commands (Gemini CLI: ")
    assert (second.input, second.status) == (outside, "failed")
    assert (second.error or "").startswith("Path not in workspace")
    assert not [event for event in events if isinstance(event, Notice) and event.code == "protocol"]


def test_requests_that_nobody_tells_of_are_not_counted_as_none(make_world: Any) -> None:
    """Without the gateway nobody knows how many requests there were: a web search asks a model of its own."""
    world = make_world("0.61.0")
    world.gateway.reply(calls=[("google_web_search", {"query": "x"})])
    world.gateway.reply(text="found")
    world.gateway.reply(text="plain")

    async def ask() -> list[Any]:
        options = world.options(approval="yolo", gateway="off")
        async with Pool(options, size=1) as pool, pool.chat() as chat:
            return [await chat.ask("search"), await chat.ask("speak")]

    searched, spoken = anyio.run(ask)
    assert [tool.status for turn in searched.turns for tool in turn.tools] == ["ok"]
    assert (searched.usage.requests, spoken.usage.requests) == (None, None)
