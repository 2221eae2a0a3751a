"""A permission request names the folder of a command, and "always" applies to that folder only."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from geminids.events.model import Notice, PermissionAsked, ToolFinished
from geminids.options import Permissions
from geminids.warm.pool import Pool

pytestmark = pytest.mark.real


def test_always_applies_to_the_folder_of_the_command(make_world: Any) -> None:
    """After `allow_always` for a command in `src`, the same command in `src` runs without a
    request. In the chat's own folder it still needs permission."""
    world = make_world("0.61.0")
    (world.cwd / "src").mkdir()
    in_src = {"command": "touch made", "dir_path": "src", "description": "Makes [it]"}
    for arguments in (in_src, in_src, {"command": "touch made"}):
        world.gateway.reply(calls=[("run_shell_command", arguments)])
    world.gateway.reply(text="done")
    requests: list[PermissionAsked] = []

    def decide(asked: PermissionAsked) -> Any:
        requests.append(asked)
        return "allow_always" if len(requests) == 1 else "deny"

    async def ask() -> Any:
        async with Pool(world.options(), size=1, on_permission=decide) as pool, pool.chat() as chat:
            return await chat.ask("go")

    result = anyio.run(ask)
    assert result.outcome == "success"
    assert [(asked.command, asked.cwd) for asked in requests] == [
        ("touch made", str(world.cwd / "src")),
        ("touch made", str(world.cwd)),
    ]
    assert [(one.decision, one.by) for one in result.decisions] == [
        ("allow_always", "callback"),
        ("allow", "rule"),
        ("deny", "callback"),
    ]
    assert (world.cwd / "src" / "made").exists() and not (world.cwd / "made").exists()


def test_an_ambiguous_folder_is_not_named(make_world: Any) -> None:
    """The CLI shows a folder as `[in FOLDER] (DESCRIPTION)`. If both `sub` and `sub] (x` exist, the
    text can mean either, so the request names no folder and does not offer "always". If only
    `odd] (x` exists, the request names it."""
    world = make_world("0.61.0")
    (world.cwd / "sub").mkdir()
    (world.cwd / "odd] (x").mkdir()
    (world.cwd / "sub] (x").mkdir()
    for folder in ("odd] (x", "sub] (x"):
        arguments = {"command": "touch made", "dir_path": folder, "description": "y"}
        world.gateway.reply(calls=[("run_shell_command", arguments)])
    world.gateway.reply(text="done")
    requests: list[PermissionAsked] = []

    def decide(asked: PermissionAsked) -> Any:
        requests.append(asked)
        return "allow"

    async def ask() -> Any:
        async with Pool(world.options(), size=1, on_permission=decide) as pool, pool.chat() as chat:
            return await chat.ask("go")

    assert anyio.run(ask).outcome == "success"
    assert [(asked.cwd, asked.always is None, asked.details) for asked in requests] == [
        (str(world.cwd / "odd] (x"), False, None),
        (None, True, "[in sub] (x] (y)"),
    ]
    assert (world.cwd / "odd] (x" / "made").exists() and (world.cwd / "sub] (x" / "made").exists()


def test_a_denied_command_names_its_rule(make_world: Any) -> None:
    """A command that `deny_commands` denies is reported as `denied`, with its input and the rule. A
    write outside the workspace is reported as `failed`, although no permission was requested."""
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
    assert (first.error or "").startswith("'rm' is in `deny_commands` (Gemini CLI: ")
    assert (second.input, second.status) == (outside, "failed")
    assert (second.error or "").startswith("Path not in workspace")
    assert not [event for event in events if isinstance(event, Notice) and event.code == "protocol"]


def test_request_count_is_unknown_without_the_gateway(make_world: Any) -> None:
    """Without the gateway, `usage.requests` of a warm turn is None: the CLI does not report all of
    its requests, for example those of a web search."""
    world = make_world("0.61.0")
    world.gateway.reply(calls=[("google_web_search", {"query": "x"})])
    world.gateway.reply(text="found")
    world.gateway.reply(text="plain")

    async def ask() -> list[Any]:
        options = world.options(approval="yolo", gateway="off")
        async with Pool(options, size=1) as pool, pool.chat() as chat:
            return [await chat.ask("search"), await chat.ask("speak")]

    searched, answered = anyio.run(ask)
    assert [tool.status for turn in searched.turns for tool in turn.tools] == ["ok"]
    assert (searched.usage.requests, answered.usage.requests) == (None, None)
