"""What is wrong with permissions before anything is started: contradictions, tools and servers that there are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from geminids.launch.permissions import capability_of, is_denied
from geminids.options import Permissions
from geminids.toolchain.tools import BUILT_IN, SHELL, built_in, is_mcp_name, server_of

__all__ = ["contradictions", "misspelt", "unknown_servers"]


def contradictions(permissions: Permissions) -> Iterator[str]:
    """What was allowed and denied at once, each in one sentence."""
    for tool in permissions.allow_tools:
        capability = capability_of(tool)
        if tool in permissions.deny_tools:
            yield f"{tool} is both in allow_tools and in deny_tools"
        elif capability and is_denied(permissions, capability):
            yield f"{tool} is in allow_tools, but {capability} is {getattr(permissions, capability)}"
        elif permissions.only_tools and tool not in permissions.only_tools:
            yield f"{tool} is in allow_tools, but not in only_tools"
        elif server := server_of(tool, permissions.deny_servers):
            yield f"{tool} is in allow_tools, but its server {server} is in deny_servers"
    for tool in permissions.only_tools:
        if tool in permissions.deny_tools:
            yield f"{tool} is both in only_tools and in deny_tools"
    if permissions.allow_commands and is_denied(permissions, "shell"):
        yield f"allow_commands names shell commands, but shell is {permissions.shell}"
    elif permissions.allow_commands and SHELL in permissions.deny_tools:
        yield f"allow_commands names shell commands, but {SHELL} is in deny_tools"
    elif permissions.allow_commands and permissions.only_tools and SHELL not in permissions.only_tools:
        yield f"allow_commands names shell commands, but {SHELL} is not in only_tools"
    for command in permissions.allow_commands:
        if command in permissions.deny_commands:
            yield f"{command!r} is both in allow_commands and in deny_commands"
    if permissions.allow_servers and is_denied(permissions, "mcp"):
        yield f"allow_servers names MCP servers, but mcp is {permissions.mcp}"
    for server in permissions.allow_servers:
        if server in permissions.deny_servers:
            yield f"{server} is both in allow_servers and in deny_servers"


def misspelt(permissions: Permissions) -> Iterator[str]:
    """Names of tools that there are not, where one with nearly that name is: the CLI would pass over them."""
    for field in ("allow_tools", "only_tools", "deny_tools"):
        for tool in getattr(permissions, field):
            if built_in(tool) is None and not is_mcp_name(tool):
                from difflib import get_close_matches  # imported late: such a name is rare

                for meant in get_close_matches(tool.lower(), [row.name for row in BUILT_IN], 1, 0.85):
                    yield f"{field} names {tool}, which is no tool; {meant} is one"


def unknown_servers(permissions: Permissions, servers: Sequence[str]) -> Iterator[str]:
    """MCP servers that there are not: a deny that denies nobody is a hole."""
    there = ", ".join(servers) or "none"
    for field in ("allow_servers", "deny_servers"):
        for server in getattr(permissions, field):
            if server not in servers:
                yield f"{field} names {server}, but the MCP servers of this run are: {there}"
