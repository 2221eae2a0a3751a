"""Runs at the same time in one folder each keep their own settings."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import anyio
import pytest

import geminids
from geminids import McpServer, Permissions
from geminids.gateway import Reply, Request
from hostile_repository import Repository, poke_server

pytestmark = pytest.mark.real

deep = pytest.mark.deep
FIRST, SECOND = "I am the one", "I am the other"


@pytest.fixture
def repository(world: Any) -> Repository:
    return Repository(world)


def _script(world: Any, repository: Repository) -> None:
    """Script each run's answers by its prompt: a delayed shell call, then text. The delay makes the
    two runs overlap."""
    for prompt in (FIRST, SECOND):
        command = repository.touch(prompt.replace(" ", "-"))
        world.gateway.when(prompt, calls=[("run_shell_command", {"command": command})], delay=1.0)
        world.gateway.when(prompt, text=f"{prompt}: done")


def _requests_with(world: Any, prompt: str) -> list[Request]:
    return [request for request in world.gateway.requests if prompt in json.dumps(request.contents)]


def _assert_apart(world: Any, repository: Repository) -> None:
    """Each request has the model, effort and MCP servers of its own run. Only the first run's shell
    call was allowed."""
    [first, *more], [only, *rest] = _requests_with(world, FIRST), _requests_with(world, SECOND)
    assert (len(more), len(rest)) == (1, 0), "the second run has only one turn"
    assert (first.model, only.model) == ("gemini-3-flash-preview", "gemini-2.5-pro")
    assert first.config["thinkingConfig"]["thinkingLevel"] == "LOW"
    assert only.config["thinkingConfig"]["thinkingBudget"] == 777
    assert "mcp_mine_poke" in first.tools
    assert "mcp_mine_poke" not in only.tools
    assert "mcp_theirs_poke" not in first.tools
    assert "run_shell_command" in first.tools
    assert "run_shell_command" not in only.tools
    assert repository.left == {"I-am-the-one", "mine", "theirs"}


def _fields(repository: Repository) -> tuple[dict[str, Any], dict[str, Any]]:
    def server(name: str) -> dict[str, McpServer]:
        settings = poke_server(repository.marks, name)
        return {name: McpServer(command=settings["command"], args=tuple(settings["args"]))}

    first = {
        "model": "gemini-3-flash-preview",
        "effort": "low",
        "mcp_servers": server("mine"),
        "permissions": Permissions(shell="allow", mcp="allow"),
    }
    second = {"model": "gemini-2.5-pro", "effort": 777, "max_turns": 1, "mcp_servers": server("theirs")}
    return first, second


def test_two_runs_in_one_event_loop(world: Any, repository: Repository) -> None:
    """Two runs in one event loop each have their own model, effort, turns, permissions and MCP
    servers."""
    _script(world, repository)
    first, second = _fields(repository)
    results: dict[str, Any] = {}

    async def run(prompt: str, fields: dict[str, Any]) -> None:
        results[prompt] = await geminids.ask(prompt, world.options(**fields))

    async def both() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, FIRST, first)
            tasks.start_soon(run, SECOND, second)

    anyio.run(both)
    assert (results[FIRST].outcome, results[FIRST].answer) == ("success", f"{FIRST}: done")
    assert results[SECOND].outcome == "max_turns"
    assert results[FIRST].session_id != results[SECOND].session_id
    _assert_apart(world, repository)


_HOST = """\
import sys
import msgspec
import geminids
options = msgspec.json.decode(sys.argv[2], type=geminids.Options)
print(geminids.ask_sync(sys.argv[1], options).outcome)
"""


@deep
def test_two_runs_in_two_processes(world: Any, repository: Repository) -> None:
    """Two runs in two processes each have their own model, effort, turns, permissions and MCP
    servers."""
    import msgspec

    _script(world, repository)
    hosts = []
    for prompt, fields in zip((FIRST, SECOND), _fields(repository), strict=True):
        options = msgspec.json.encode(world.options(**fields)).decode()
        argv = [sys.executable, "-c", _HOST, prompt, options]
        hosts.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
    try:
        outcomes = [host.communicate(timeout=90)[0].strip() for host in hosts]
    finally:
        for host in hosts:
            if host.poll() is None:
                host.kill()
                host.wait()
    assert outcomes == ["success", "max_turns"]
    _assert_apart(world, repository)


@deep
def test_many_runs_with_the_same_settings(world: Any) -> None:
    """Six runs with the same settings share one private home at the same time. All succeed, each
    with its own session."""
    world.gateway.upstream.add(Reply(text="hi", times=None))
    results: list[Any] = []

    async def run() -> None:
        results.append(await geminids.ask("hello", world.options(effort="low")))

    async def run_all() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(run)

    anyio.run(run_all)
    assert [result.outcome for result in results] == ["success"] * 6
    assert len({result.session_id for result in results}) == 6
