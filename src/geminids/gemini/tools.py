"""The CLI's built-in tools, the permissions that they need, and the approval modes that
allow them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from geminids.options.permissions import Capability

__all__ = [
    "AGENTS",
    "BUILT_IN",
    "SHELL",
    "BuiltIn",
    "built_in",
    "is_mcp_name",
    "known_as",
    "server_of",
    "tools_with",
]

SHELL = "run_shell_command"
_MCP = "mcp_"

# The approval modes in which a headless run may call a tool. `always`: all modes. `work`: all modes
# except `plan`. `edit`: `auto_edit` and `yolo`. `yolo`: only `yolo`. `never`: none.
Level = Literal["always", "work", "edit", "yolo", "never"]


class BuiltIn(msgspec.Struct, frozen=True):
    """A built-in tool of the CLI.

    `level` says in which approval modes a headless run may call the tool: `always` (all modes),
    `work` (all except `plan`), `edit` (`auto_edit` and `yolo`), `yolo` (only `yolo`) or `never`.
    `capability` is the permission that the tool needs; None if it needs none.
    """

    name: str
    level: Level
    capability: Capability | None = None


# From the CLI's policy files (policies/*.toml) of 0.61.0, and for renamed and removed tools, from
# those of earlier releases.
BUILT_IN: tuple[BuiltIn, ...] = (
    BuiltIn("read_file", "always"),
    BuiltIn("read_many_files", "always"),
    BuiltIn("list_directory", "always"),
    BuiltIn("glob", "always"),
    BuiltIn("grep_search", "always"),
    BuiltIn("search_file_content", "always"),
    BuiltIn("get_internal_docs", "always"),
    BuiltIn("read_mcp_resource", "always", "mcp"),
    BuiltIn("list_mcp_resources", "always", "mcp"),
    BuiltIn("google_web_search", "always", "network"),
    BuiltIn("update_topic", "always"),
    BuiltIn("complete_task", "always"),
    BuiltIn("codebase_investigator", "always"),
    BuiltIn("cli_help", "always"),
    BuiltIn("tracker_create_task", "always"),
    BuiltIn("tracker_update_task", "always"),
    BuiltIn("tracker_get_task", "always"),
    BuiltIn("tracker_list_tasks", "always"),
    BuiltIn("tracker_add_dependency", "always"),
    BuiltIn("tracker_visualize", "always"),
    BuiltIn("invoke_agent", "work"),
    BuiltIn("delegate_to_agent", "work"),
    BuiltIn("generalist", "work"),
    BuiltIn("write_file", "edit", "file_write"),
    BuiltIn("replace", "edit", "file_write"),
    BuiltIn("web_fetch", "edit", "network"),
    BuiltIn("run_shell_command", "yolo", "shell"),
    BuiltIn("list_background_processes", "yolo", "shell"),
    BuiltIn("read_background_output", "yolo", "shell"),
    BuiltIn("activate_skill", "yolo", "skills"),
    BuiltIn("save_memory", "yolo"),
    BuiltIn("write_todos", "yolo"),
    BuiltIn("enter_plan_mode", "yolo"),
    BuiltIn("exit_plan_mode", "yolo"),
    BuiltIn("ask_user", "never"),
)

_ROWS = {tool.name: tool for tool in BUILT_IN}
# The built-in subagents. The CLI applies a rule for a subagent to calls of `invoke_agent` that name
# this subagent.
AGENTS = ("codebase_investigator", "cli_help", "generalist")
# The new and the old name of one tool. A rule for one name applies to both
# (core/src/tools/tool-names.ts).
_RENAMED = ("grep_search", "search_file_content")


def built_in(name: str) -> BuiltIn | None:
    """Return the built-in tool with this name; None if there is none.

    >>> built_in("run_shell_command").capability, built_in("read_file").capability
    ('shell', None)
    """
    return _ROWS.get(name)


def known_as(name: str) -> tuple[str, ...]:
    """Return all names of the tool `name`. Usually this is only `name` itself. If the CLI has
    renamed the tool, these are the new and the old name.

    >>> known_as("grep_search"), known_as("glob")
    (('grep_search', 'search_file_content'), ('glob',))
    """
    return _RENAMED if name in _RENAMED else (name,)


def tools_with(capability: Capability) -> tuple[str, ...]:
    """Return the names of the built-in tools that need this permission (`capability`).

    Tools of MCP servers, which need the permission `mcp`, are not included.
    """
    return tuple(tool.name for tool in BUILT_IN if tool.capability == capability)


def is_mcp_name(name: str) -> bool:
    """Return whether the tool with this name belongs to an MCP server. The names of MCP tools have
    the form `mcp_<server>_<tool>`.
    """
    return name.startswith(_MCP) and name not in _ROWS


def server_of(name: str, servers: tuple[str, ...]) -> str | None:
    """Return the name of the MCP server that the tool `name` belongs to. Return None if the tool
    does not belong to a server in `servers`.

    Several servers can match, because the names of servers and tools can contain `_`. Then the
    server with the longest name is returned.
    """
    matching = [server for server in servers if name.startswith(f"{_MCP}{server}_")]
    return max(matching, key=len, default=None)
