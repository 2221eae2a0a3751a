"""The CLI's built-in tools, their capabilities, and the approval modes that allow them headless."""

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

# `always` means every mode, including plan; `yolo` means only that mode.
Level = Literal["always", "work", "edit", "yolo", "never"]


class BuiltIn(msgspec.Struct, frozen=True):
    """One tool: its capability, if any, and the lowest mode that approves it headless."""

    name: str
    level: Level
    capability: Capability | None = None


# From the policy files of 0.61.0 (policies/*.toml); for renamed or removed tools, of earlier
# releases. fmt: off
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
# fmt: on

_ROWS = {tool.name: tool for tool in BUILT_IN}
# The built-in subagents. A rule for one is a rule for `invoke_agent` with its name.
AGENTS = ("codebase_investigator", "cli_help", "generalist")
# One tool with two names: a rule for either applies to both (core/src/tools/tool-names.ts).
_RENAMED = ("grep_search", "search_file_content")


def built_in(name: str) -> BuiltIn | None:
    """Look up a built-in tool by name.

    >>> built_in("run_shell_command").capability, built_in("read_file").capability
    ('shell', None)
    """
    return _ROWS.get(name)


def known_as(name: str) -> tuple[str, ...]:
    """Return all names of a tool. The CLI applies a rule for an old name to the new name too.

    >>> known_as("grep_search"), known_as("glob")
    (('grep_search', 'search_file_content'), ('glob',))
    """
    return _RENAMED if name in _RENAMED else (name,)


def tools_with(capability: Capability) -> tuple[str, ...]:
    """Return the built-in tools of a capability. `mcp` also covers all tools of MCP servers."""
    return tuple(tool.name for tool in BUILT_IN if tool.capability == capability)


def is_mcp_name(name: str) -> bool:
    """Whether this is a tool of an MCP server (`mcp_<server>_<tool>`, since 0.33)."""
    return name.startswith(_MCP) and name not in _ROWS


def server_of(name: str, servers: tuple[str, ...]) -> str | None:
    """Return the server of a tool: the longest name that matches, because names can contain `_`."""
    matching = [server for server in servers if name.startswith(f"{_MCP}{server}_")]
    return max(matching, key=len, default=None)
