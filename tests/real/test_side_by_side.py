"""Two runs at once in one folder, with different settings, do not see each other's."""

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
from hostile import Repository, poke_server

pytestmark = pytest.mark.real

deep = pytest.mark.deep
ONE, OTHER = "I am the one", "I am the other"


@pytest.fixture
def repository(world: Any) -> Repository:
    return Repository(world)


def _script(world: Any, repository: Repository) -> None:
    """For each its own answers: both call a shell and end, but wait until the other is there."""
    for who in (ONE, OTHER):
        mark = repository.touch(who.replace(" ", "-"))
        world.gateway.when(who, calls=[("run_shell_command", {"command": mark})], delay=1.0)
        world.gateway.when(who, text=f"{who}: done")


def _of(world: Any, who: str) -> list[Request]:
    return [request for request in world.gateway.requests if who in json.dumps(request.contents)]


def _assert_apart(world: Any, repository: Repository) -> None:
    """Each request has its own run's model, effort and servers; the one shell was allowed, the other was not."""
    [first, *more], [only, *rest] = _of(world, ONE), _of(world, OTHER)
    assert (len(more), len(rest)) == (1, 0), "the other has one turn alone"
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
        given = poke_server(repository.marks, name)
        return {name: McpServer(command=given["command"], args=tuple(given["args"]))}

    one = {
        "model": "gemini-3-flash-preview",
        "effort": "low",
        "mcp_servers": server("mine"),
        "permissions": Permissions(shell="allow", mcp="allow"),
    }
    other = {"model": "gemini-2.5-pro", "effort": 777, "max_turns": 1, "mcp_servers": server("theirs")}
    return one, other


def test_two_runs_in_one_event_loop(world: Any, repository: Repository) -> None:
    """Model, effort, turns, permissions and MCP servers are each run's own."""
    _script(world, repository)
    one, other = _fields(repository)
    results: dict[str, Any] = {}

    async def run(who: str, fields: dict[str, Any]) -> None:
        results[who] = await geminids.ask(who, world.options(**fields))

    async def both() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, ONE, one)
            tasks.start_soon(run, OTHER, other)

    anyio.run(both)
    assert (results[ONE].outcome, results[ONE].answer) == ("success", f"{ONE}: done")
    assert results[OTHER].outcome == "max_turns"
    assert results[ONE].session_id != results[OTHER].session_id
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
    """The same where each run has a host of its own."""
    import msgspec

    _script(world, repository)
    hosts = []
    for who, fields in zip((ONE, OTHER), _fields(repository), strict=True):
        options = msgspec.json.encode(world.options(**fields)).decode()
        argv = [sys.executable, "-c", _HOST, who, options]
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
    """Runs that share a private home at the same moment all succeed, each with a session of its own."""
    world.gateway.upstream.add(Reply(text="hi", times=None))
    results: list[Any] = []

    async def run() -> None:
        results.append(await geminids.ask("hello", world.options(effort="low")))

    async def all_of_them() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(run)

    anyio.run(all_of_them)
    assert [result.outcome for result in results] == ["success"] * 6
    assert len({result.session_id for result in results}) == 6
