"""Calls that a model can ask for, and how each of them shows in the world once it is made."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geminids import ToolFinished
from geminids.options import McpServer, Permissions

__all__ = ["ACTS", "Act", "Played", "furnish", "perform", "play", "server"]

SKILL = "Point the telescope at Aldebaran-77."
_SKILL_FILE = f"---\nname: star-chart\ndescription: Draws the sky.\n---\n{SKILL}\n"

# An MCP server with one tool and no dependencies: it leaves a file when it is started, another when it is called.
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
class Act:
    """One call: the tool, what it is given, and the file that is there when it was made (or a text in it)."""

    tool: str
    args: dict[str, Any]
    leaves: str = ""
    text: str | None = None


def _shell(command: str, leaves: str) -> Act:
    return Act("run_shell_command", {"command": command, "description": "try"}, leaves)


ACTS: dict[str, Act] = {
    "read": Act("read_file", {"file_path": "seed.txt"}),
    "write": Act("write_file", {"file_path": "written.txt", "content": "x\n"}, "written.txt"),
    "replace": Act(
        "replace",
        {"file_path": "seed.txt", "instruction": "change it", "old_string": "old", "new_string": "new"},
        "seed.txt",
        "the new star\n",
    ),
    "build file": Act(
        "write_file", {"file_path": "pyproject.toml", "content": "[project]\n"}, "pyproject.toml"
    ),
    "shell": _shell("touch plain.txt", "plain.txt"),
    "shell >": _shell("echo hi > redirected.txt", "redirected.txt"),
    "shell |": _shell("echo hi | tee piped.txt", "piped.txt"),
    "shell $()": _shell("touch $(echo substituted.txt)", "substituted.txt"),
    "search": Act("google_web_search", {"query": "meteor showers"}),
    # A host that the CLI itself never fetches: whether it is tried can be seen, and no request leaves.
    "fetch": Act("web_fetch", {"prompt": "read http://127.0.0.1:9/page and sum it up"}),
    "mcp": Act("mcp_lab_mark", {}, "lab.mark.called"),
    "skill": Act("activate_skill", {"name": "star-chart"}),
}


def furnish(world: Any) -> None:
    """A folder, a user's skill and a server's program, for all acts to be possible."""
    (world.cwd / "seed.txt").write_text("the old star\n")
    skill = world.home / ".gemini" / "skills" / "star-chart" / "SKILL.md"
    skill.parent.mkdir(parents=True, exist_ok=True)
    skill.write_text(_SKILL_FILE)
    (world.root / "server.py").write_text(_SERVER)


def server(world: Any, name: str = "lab") -> McpServer:
    """The server that leaves marks in the folder of the run."""
    return McpServer(command=sys.executable, args=(str(world.root / "server.py"), str(world.cwd), name))


@dataclass(frozen=True)
class Played:
    """A run in which the model has asked for acts one by one."""

    world: Any
    finished: dict[str, ToolFinished]
    events: list[Any]

    def happened(self, name: str) -> bool:
        """Whether the world shows it; where nothing is left behind, what went to the model or came from it."""
        act = ACTS[name]
        if name == "search":
            return "googleSearch" in json.dumps([r.body.get("tools") for r in self.world.gateway.requests])
        if name == "fetch":
            return "Blocked Host" in self.said(name) or "fetch failed" in self.said(name)
        if name == "skill":
            return SKILL in self._results()
        if name == "read":
            return "the old star" in self._results()
        file: Path = self.world.cwd / act.leaves
        return file.exists() and (act.text is None or file.read_text() == act.text)

    def said(self, name: str) -> str:
        event = self.finished[name]
        return f"{event.output or ''}{event.error or ''}"

    def _results(self) -> str:
        return json.dumps([result for r in self.world.gateway.requests for result in r.tool_results])

    def outcome(self, name: str) -> str:
        """`ok`: it happened; `denied`: it did not, and the event says so with a reason; else what is odd."""
        event, happened = self.finished.get(name), self.happened(name)
        if event is None:
            return "never finished"
        if name == "fetch" and happened and event.status == "failed":
            return "ok"  # it was tried: the CLI's own fence against local hosts is not ours
        if event.status == "ok" and happened:
            return "ok"
        if event.status == "denied" and not happened and event.error:
            return "denied"
        return (
            f"{event.status}, {'happened' if happened else 'did not happen'}: {event.error or event.output}"
        )

    def why(self, name: str) -> str:
        return self.finished[name].error or ""


def perform(world: Any, acts: Iterable[tuple[str, Act]], **fields: Any) -> Played:
    """Let the model ask for these one after the other."""
    acts = list(acts)
    for _, act in acts:
        world.gateway.reply(calls=[(act.tool, act.args)])
    world.gateway.reply(text="done")
    events = world.events("please do it", **fields)
    ended = [event for event in events if isinstance(event, ToolFinished)]
    assert events[-1].outcome == "success", events[-1].failure
    assert len(ended) == len(acts), [event.name for event in ended]
    return Played(world, {name: event for (name, _), event in zip(acts, ended, strict=True)}, events)


def play(world: Any, names: Iterable[str], approval: str, permissions: Permissions, **fields: Any) -> Played:
    """The acts of the table, in a world that is furnished for all of them."""
    furnish(world)
    options: dict[str, Any] = {"mcp_servers": {"lab": server(world)}, **fields}
    return perform(
        world, [(n, ACTS[n]) for n in names], approval=approval, permissions=permissions, **options
    )
