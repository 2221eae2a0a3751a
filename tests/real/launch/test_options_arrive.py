"""Options without a flag of the CLI take effect: in requests, MCP servers and folders."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import McpServer, Permissions, ToolFinished
from hostile_repository import Repository, poke_server, system_prompt, tool_results

pytestmark = pytest.mark.real

deep = pytest.mark.deep


@deep
def test_a_system_prompt_replaces_the_clis(world: Any) -> None:
    """The text of the `system_prompt` file is the system instruction. Without the option, the CLI's
    own instruction is used."""
    file = world.root / "system.md"
    file.write_text("YOU-ARE-A-PIRATE ${AvailableTools}\n")
    world.gateway.reply(text="arr")
    assert world.ask(system_prompt=str(file)).ok
    assert "YOU-ARE-A-PIRATE" in system_prompt(world, -1)
    assert "software engineering" not in system_prompt(world, -1)
    world.gateway.reply(text="hi")
    assert world.ask().ok
    assert "YOU-ARE-A-PIRATE" not in system_prompt(world, -1)


@deep
def test_include_dirs_open_a_folder(world: Any) -> None:
    """A tool can read a file in a folder of `include_dirs`, and cannot without the option."""
    other = world.root / "other folder"
    other.mkdir()
    (other / "note.txt").write_text("A-NOTE-FROM-ELSEWHERE")
    for folders in ((), (str(other),)):
        world.gateway.reply(calls=[("read_file", {"file_path": str(other / "note.txt")})])
        world.gateway.reply(text="done")
        assert world.ask(include_dirs=folders).ok
        assert ("A-NOTE-FROM-ELSEWHERE" in tool_results(world)) == bool(folders)


def test_an_mcp_server_of_the_run(world: Any) -> None:
    """An MCP server of the run is started in its folder and with its variables. Its tool can be
    called only if that is allowed."""
    marks = Repository(world).marks
    poke = poke_server(marks, "callers")
    server = McpServer(
        command="sh",
        args=("-c", 'pwd > "$WHERE"; exec "$0" "$@"', poke["command"], *poke["args"]),
        env={"WHERE": str(marks / "where")},
        cwd=str(world.home),
    )
    statuses = []
    for permissions in (Permissions(), Permissions(allow_servers=("callers",))):
        world.gateway.reply(calls=[("mcp_callers_poke", {})])
        world.gateway.reply(text="done")
        events = world.events(mcp_servers={"callers": server}, permissions=permissions)
        statuses += [event.status for event in events if isinstance(event, ToolFinished)]
        assert (marks / "callers").exists()
        assert (marks / "where").read_text().strip() == str(world.home)
    assert (statuses[0] == "ok", statuses[1]) == (False, "ok")
    assert (marks / "callers-poked").exists()
