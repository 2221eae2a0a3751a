"""Build the kind, the title and the path of Untether's actions from tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from geminids.dialects.claude.tools import claude_tool

__all__ = ["Kind", "normalized_name", "path_in", "tool_kind_and_title"]

Kind = Literal[
    "command", "tool", "file_change", "web_search", "subagent", "note", "turn", "warning", "telemetry"
]
Args = Mapping[str, Any]

_NAMES = {
    # Names in Untether's documentation. Most of them never existed in the CLI.
    "edit_file": "edit",
    "web_search": "websearch",
    "list_dir": "ls",
    "find_files": "glob",
    "search_files": "grep",
    # Names that the releases of the CLI use.
    "read_file": "read",
    "read_many_files": "read",
    "write_file": "write",
    "replace": "edit",
    "run_shell_command": "bash",
    "list_directory": "ls",
    "grep_search": "grep",
    "search_file_content": "grep",
    "google_web_search": "websearch",
    "web_fetch": "webfetch",
}
_KINDS: dict[str, Kind] = {"bash": "command", "edit": "file_change", "write": "file_change"}
_TOOLS_WITH_PATH = ("edit", "write", "read", "ls")
# The parameter that the title shows, by tool.
_SHOWN = {"bash": "command", "glob": "pattern", "grep": "pattern", "websearch": "query"}
# The first three keys are in Untether's documentation. Older and newer tools of the CLI use the
# last two.
_PATH_KEYS = ("file_path", "path", "filePath", "absolute_path", "dir_path")


def tool_kind_and_title(
    name: str, parameters: Args, *, paths: Sequence[str] = (), title: str = ""
) -> tuple[Kind, str]:
    """Return the kind and the title of a tool call.

    On the warm transport, where the CLI is already running before the run starts, a call starts
    before its parameters are reported. Until then, the title is made from `paths`, the files of the
    call. If `paths` is empty too, the parameter `title` is used, the CLI's own description of the
    call.

    >>> tool_kind_and_title("write_file", {"file_path": "src/a.py"})
    ('file_change', 'write: src/a.py')
    >>> tool_kind_and_title("run_shell_command", {"command": "cat a.py"})
    ('command', 'cat a.py')
    """
    name = normalized_name(name)
    kind = _KINDS.get(name, "tool")
    if name not in _SHOWN and name not in _TOOLS_WITH_PATH and name != "webfetch":
        return kind, name
    subject = _subject(name, parameters, paths)
    if subject is None:
        return kind, (title if not parameters else "") or name
    return kind, subject if name == "bash" else f"{name}: {subject}"


def normalized_name(name: str) -> str:
    """Return Untether's name for a tool of the CLI, such as `read` for `read_file`.

    If Untether has no name for the tool, return the CLI's name in lower case.
    """
    name = name.lower()
    return _NAMES.get(name, name)


def path_in(parameters: Args) -> str | None:
    """Return the path in the parameters of a call; None if the parameters contain no path."""
    return next((path for key in _PATH_KEYS if (path := _text(parameters.get(key)))), None)


def _subject(name: str, parameters: Args, paths: Sequence[str]) -> str | None:
    """Return the part of a call's input that its title shows: the command, path, pattern, query or
    URL. Return None if it is not known."""
    if name in _SHOWN:
        return _text(parameters.get(_SHOWN[name]))
    if name == "webfetch":
        # The CLI's tool gets the URL in its parameter `prompt`.
        return _text(claude_tool("web_fetch", parameters)[1].get("url"))
    path = path_in(parameters) or (paths[0] if paths else None)
    if path is None and isinstance(patterns := parameters.get("include"), list):
        # `read_many_files` has a list of paths and patterns.
        return ", ".join(pattern for pattern in patterns if isinstance(pattern, str)) or None
    return path


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
