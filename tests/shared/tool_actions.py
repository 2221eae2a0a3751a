"""Tool calls that a model can make, and how a test sees that a call had its effect."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geminids import ToolFinished
from geminids.options import McpServer, Permissions

__all__ = [
    "TOOL_ACTIONS",
    "ActionRun",
    "ToolAction",
    "mark_server",
    "prepare_world",
    "run_actions",
    "run_named_actions",
]

SKILL = "Point the telescope at Aldebaran-77."
_SKILL_FILE = f"---\nname: star-chart\ndescription: Draws the sky.\n---\n{SKILL}\n"

# An MCP server with two tools and no dependencies. It creates one file when it starts, and one for
# each called tool.
_SERVER = """\
import json, pathlib, sys
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / f"{name}.started").touch()
TOOL = {"description": "Leaves a mark.", "inputSchema": {"type": "object", "properties": {}}}
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if "id" not in asked:
        continue
    if method == "initialize":
        version = asked["params"]["protocolVersion"]
        answer = {"protocolVersion": version, "capabilities": {"tools": {}},
                  "serverInfo": {"name": name, "version": "1"}}
    elif method == "tools/list":
        answer = {"tools": [{"name": "mark", **TOOL}, {"name": "other", **TOOL}]}
    elif method == "tools/call":
        tool = asked["params"]["name"]
        (folder / f"{name}.{tool}.called").touch()
        answer = {"content": [{"type": "text", "text": "marked"}]}
    else:
        answer = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


@dataclass(frozen=True)
class ToolAction:
    """One tool call: the tool, its arguments, the file that it creates, and the text of that
    file."""

    tool: str
    args: dict[str, Any]
    leaves: str = ""
    text: str | None = None


def _shell(command: str, leaves: str) -> ToolAction:
    return ToolAction("run_shell_command", {"command": command, "description": "try"}, leaves)


TOOL_ACTIONS: dict[str, ToolAction] = {
    "read": ToolAction("read_file", {"file_path": "seed.txt"}),
    "write": ToolAction("write_file", {"file_path": "written.txt", "content": "x\n"}, "written.txt"),
    "replace": ToolAction(
        "replace",
        {"file_path": "seed.txt", "instruction": "change it", "old_string": "old", "new_string": "new"},
        "seed.txt",
        "the new star\n",
    ),
    "build file": ToolAction(
        "write_file", {"file_path": "pyproject.toml", "content": "[project]\n"}, "pyproject.toml"
    ),
    "shell": _shell("touch plain.txt", "plain.txt"),
    "shell >": _shell("echo hi > redirected.txt", "redirected.txt"),
    "shell |": _shell("echo hi | tee piped.txt", "piped.txt"),
    "shell $()": _shell("touch $(echo substituted.txt)", "substituted.txt"),
    "search": ToolAction("google_web_search", {"query": "meteor showers"}),
    # The CLI itself refuses to fetch a local host. A test sees the attempt, and no request is sent.
    "fetch": ToolAction("web_fetch", {"prompt": "read http://127.0.0.1:9/page and sum it up"}),
    "mcp": ToolAction("mcp_lab_mark", {}, "lab.mark.called"),
    "skill": ToolAction("activate_skill", {"name": "star-chart"}),
}


def prepare_world(world: Any) -> None:
    """Write the files that the tool calls need: a text file, a skill of the user and an MCP
    server."""
    (world.cwd / "seed.txt").write_text("the old star\n")
    skill = world.home / ".gemini" / "skills" / "star-chart" / "SKILL.md"
    skill.parent.mkdir(parents=True, exist_ok=True)
    skill.write_text(_SKILL_FILE)
    (world.root / "server.py").write_text(_SERVER)


def mark_server(world: Any, name: str = "lab") -> McpServer:
    """Return an MCP server that creates marker files in the working folder."""
    return McpServer(command=sys.executable, args=(str(world.root / "server.py"), str(world.cwd), name))


@dataclass(frozen=True)
class ActionRun:
    """A run in which the model made tool calls one by one. `finished` has the end of each by
    name."""

    world: Any
    finished: dict[str, ToolFinished]
    events: list[Any]

    def happened(self, name: str) -> bool:
        """Return whether a call had its effect: its file exists, or for a call without a file, the
        requests or tool results show it."""
        action = TOOL_ACTIONS[name]
        if name == "search":
            return "googleSearch" in json.dumps([r.body.get("tools") for r in self.world.gateway.requests])
        if name == "fetch":
            return "Blocked Host" in self.output_of(name) or "fetch failed" in self.output_of(name)
        if name == "skill":
            return SKILL in self._results()
        if name == "read":
            return "the old star" in self._results()
        file: Path = self.world.cwd / action.leaves
        return file.exists() and (action.text is None or file.read_text() == action.text)

    def output_of(self, name: str) -> str:
        event = self.finished[name]
        return f"{event.output or ''}{event.error or ''}"

    def _results(self) -> str:
        return json.dumps([result for r in self.world.gateway.requests for result in r.tool_results])

    def outcome(self, name: str) -> str:
        """Return `ok` if a call had its effect, and `denied` if it was denied with a reason and had
        no effect. Otherwise describe the contradiction."""
        event, happened = self.finished.get(name), self.happened(name)
        if event is None:
            return "never finished"
        if name == "fetch" and happened and event.status == "failed":
            return "ok"  # the call was allowed; the CLI itself refuses local hosts
        if event.status == "ok" and happened:
            return "ok"
        if event.status == "denied" and not happened and event.error:
            return "denied"
        return (
            f"{event.status}, {'happened' if happened else 'did not happen'}: {event.error or event.output}"
        )

    def why(self, name: str) -> str:
        """Return the error of a call, or an empty text."""
        return self.finished[name].error or ""


def run_actions(world: Any, actions: Iterable[tuple[str, ToolAction]], **fields: Any) -> ActionRun:
    """Run a prompt in which the model makes these tool calls one by one, then replies "done"."""
    actions = list(actions)
    for _, action in actions:
        world.gateway.reply(calls=[(action.tool, action.args)])
    world.gateway.reply(text="done")
    events = world.events("please do it", **fields)
    ended = [event for event in events if isinstance(event, ToolFinished)]
    assert events[-1].outcome == "success", events[-1].failure
    assert len(ended) == len(actions), [event.name for event in ended]
    return ActionRun(world, {name: event for (name, _), event in zip(actions, ended, strict=True)}, events)


def run_named_actions(
    world: Any, names: Iterable[str], approval: str, permissions: Permissions, **fields: Any
) -> ActionRun:
    """Prepare the world, and run the tool calls with these names from `TOOL_ACTIONS`."""
    prepare_world(world)
    options: dict[str, Any] = {"mcp_servers": {"lab": mark_server(world)}, **fields}
    return run_actions(
        world, [(n, TOOL_ACTIONS[n]) for n in names], approval=approval, permissions=permissions, **options
    )
