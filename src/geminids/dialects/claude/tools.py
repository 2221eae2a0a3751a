"""Map tool calls of every release of Gemini CLI to the names and inputs of Claude's tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from geminids.gemini.protocol.stream_json import text_of

__all__ = ["claude_tool"]

Args = Mapping[str, Any]
_URL = re.compile(r"https?://[^\s<>\"'`]+")
_MCP_TITLE = re.compile(r"(?s)(.+) \((.+) MCP Server\)")
# Before release 0.39 of the CLI, each of these subagents is a separate tool. The tools
# `invoke_agent` and `delegate_to_agent` get the name of the subagent as an argument.
_AGENTS = ("codebase_investigator", "cli_help", "generalist", "generalist_agent", "browser_agent")
_LONGEST_DESCRIPTION = 60


def claude_tool(name: str, args: Args, title: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return Claude's name and input for a tool call.

    A tool that Claude does not have keeps its name and arguments. `title` is the call's
    `displayName` in a session file. If `title` has the form `<tool> (<server> MCP Server)`, the
    names of the MCP tool and its server are taken from `title`, otherwise from `name`.

    >>> claude_tool("read_file", {"absolute_path": "/repo/a.py"})
    ('Read', {'file_path': '/repo/a.py'})
    >>> claude_tool("mcp_github_search", {"q": "x"})
    ('mcp__github__search', {'q': 'x'})
    """
    known = _TOOLS.get(name)
    if known is not None:
        return known[0], known[1](args)
    if name in _AGENTS:
        return "Task", _task(name, args)
    return _mcp_name(name, title) or name, dict(args)


def _mcp_name(name: str, title: str | None) -> str | None:
    """Return Claude's name of an MCP tool. Return None if neither `title` nor `name` has the form
    of an MCP tool, or if `name` is already Claude's name.

    Since 0.33, the CLI names MCP tools `mcp_<server>_<tool>`. Earlier releases use the tool's own
    name or `<server>__<tool>`.
    """
    if title and (parts := _MCP_TITLE.fullmatch(title)):
        return f"mcp__{parts[2]}__{parts[1]}"
    if name.startswith(("mcp__", "discovered_tool_")):
        return None
    if name.startswith("mcp_"):
        server, _, tool = name.removeprefix("mcp_").partition("_")
    else:
        server, _, tool = name.partition("__")
    return f"mcp__{server}__{tool}" if server and tool else None


def _first(args: Args, *names: str) -> Any:
    for name in names:
        if (value := args.get(name)) is not None:
            return value
    return None


def _without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _read(args: Args) -> dict[str, Any]:
    start, end = args.get("start_line"), args.get("end_line")
    offset, limit = args.get("offset"), args.get("limit")
    if isinstance(offset, int):
        offset += 1  # until 0.30, the CLI counts lines from 0; Claude counts from 1
    if isinstance(start, int):
        offset = start
    if isinstance(end, int):
        limit = end - (start if isinstance(start, int) else 1) + 1
    return _without_none(
        file_path=_first(args, "absolute_path", "file_path", "path"), offset=offset, limit=limit
    )


def _read_many(args: Args) -> dict[str, Any]:
    """Return the input of Claude's tool `Read` for a call that reads several files.

    Claude's tool takes only one path, so all paths are joined to one text, separated by commas.
    """
    paths = [*_texts(args.get("paths")), *_texts(args.get("include"))]
    return {"file_path": ", ".join(paths)}


def _texts(value: Any) -> Iterable[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _edit(args: Args) -> dict[str, Any]:
    expected = args.get("expected_replacements")
    every = args.get("allow_multiple") is True or (isinstance(expected, int) and expected > 1)
    return _without_none(
        file_path=_first(args, "file_path", "absolute_path"),
        old_string=args.get("old_string"),
        new_string=args.get("new_string"),
        replace_all=True if every else None,
    )


def _folder(args: Args) -> Any:
    return _first(args, "dir_path", "path")


def _grep(args: Args) -> dict[str, Any]:
    sensitive = args.get("case_sensitive")
    more = {
        "-i": not sensitive if isinstance(sensitive, bool) else None,
        "-A": args.get("after"),
        "-B": args.get("before"),
        "-C": args.get("context"),
    }
    return _without_none(
        pattern=args.get("pattern"),
        path=_folder(args),
        glob=_first(args, "include_pattern", "include"),
        output_mode="files_with_matches" if args.get("names_only") is True else "content",
        head_limit=args.get("total_max_matches"),
        **more,
    )


def _bash(args: Args) -> dict[str, Any]:
    background = True if args.get("is_background") is True else None
    return _without_none(
        command=args.get("command"), description=args.get("description"), run_in_background=background
    )


def _fetch(args: Args) -> dict[str, Any]:
    """Return the input of Claude's tool for web pages: a URL and a prompt. If the call has no
    argument `url`, the first URL in the prompt is used."""
    prompt = args.get("prompt")
    match = _URL.search(prompt) if isinstance(prompt, str) else None
    return _without_none(url=args.get("url") or (match and match[0].rstrip(".,;:!?)]}")), prompt=prompt)


def _todos(args: Args) -> dict[str, Any]:
    """Convert a list of todos to the input of Claude's tool.

    A blocked todo becomes pending, and a cancelled todo is omitted, because Claude has neither of
    these two statuses.
    """
    todos = args.get("todos")
    return {
        "todos": [
            {"content": text, "status": "pending" if status == "blocked" else status, "activeForm": text}
            for todo in (todos if isinstance(todos, list) else [])
            if isinstance(todo, dict) and (status := todo.get("status", "pending")) != "cancelled"
            for text in [text_of(todo.get("description", ""))]
        ]
    }


def _invoke_agent(args: Args) -> dict[str, Any]:
    rest = {name: value for name, value in args.items() if name != "agent_name"}
    return _task(text_of(args.get("agent_name", "")), rest)


def _task(agent: str, args: Args) -> dict[str, Any]:
    """Return the input of Claude's tool `Task`, which starts a subagent. `agent` is the name of the
    subagent.

    In releases of the CLI before 0.39, each subagent had its own names for its arguments. If `args`
    has no argument with a known name for the prompt, the prompt is built from all arguments: a
    single argument is used as it is, several arguments are encoded as JSON.
    """
    prompt = _first(args, "prompt", "objective", "request", "question", "query", "task")
    if prompt is None and args:
        prompt = next(iter(args.values())) if len(args) == 1 else dict(args)
    prompt = "" if prompt is None else text_of(prompt)
    line = prompt.strip().partition("\n")[0]
    short = line if len(line) <= _LONGEST_DESCRIPTION else line[: _LONGEST_DESCRIPTION - 1] + "…"
    return {"prompt": prompt, "description": short or agent, "subagent_type": agent}


_TOOLS: dict[str, tuple[str, Callable[[Args], dict[str, Any]]]] = {
    "read_file": ("Read", _read),
    "read_many_files": ("Read", _read_many),
    "write_file": (
        "Write",
        lambda args: _without_none(
            file_path=_first(args, "file_path", "absolute_path"), content=args.get("content")
        ),
    ),
    "replace": ("Edit", _edit),
    "list_directory": ("Glob", lambda args: _without_none(pattern="*", path=_folder(args))),
    "glob": ("Glob", lambda args: _without_none(pattern=args.get("pattern"), path=_folder(args))),
    "grep_search": ("Grep", _grep),
    "search_file_content": ("Grep", _grep),
    "run_shell_command": ("Bash", _bash),
    "google_web_search": ("WebSearch", dict),
    "web_fetch": ("WebFetch", _fetch),
    "write_todos": ("TodoWrite", _todos),
    "activate_skill": ("Skill", lambda args: _without_none(skill=args.get("name"))),
    "ask_user": ("AskUserQuestion", dict),
    "invoke_agent": ("Task", _invoke_agent),
    "delegate_to_agent": ("Task", _invoke_agent),
}
