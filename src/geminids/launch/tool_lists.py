"""Permissions for releases before 0.30, which know no `--policy`: lists of tools in the settings.

These can say less than rules can. What they cannot say is refused; it is never widened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from geminids.launch.permissions import denied_tools, is_denied
from geminids.launch.settings import Settings
from geminids.options import CAPABILITIES, Approval, Permissions
from geminids.toolchain import Release
from geminids.toolchain.tools import SHELL, built_in, is_mcp_name, tools_with

__all__ = ["cannot_say", "tool_lists"]


def cannot_say(permissions: Permissions, approval: Approval, release: Release) -> Iterator[str]:
    """What these permissions ask for that this release has no words for."""
    if permissions.deny_commands:
        yield "deny_commands"
    if any(is_mcp_name(tool) or "__" in tool for tool in permissions.only_tools):
        yield "only_tools with tools of MCP servers"
    if not release.policy_engine and (permissions.allow_tools or permissions.allow_commands):
        yield "allow_tools and allow_commands"
    allowed = [capability for capability in CAPABILITIES if getattr(permissions, capability) == "allow"]
    if not release.policy_engine and allowed:
        yield f"allow {', '.join(allowed)}"
    if permissions.skills == "allow" and not release.skills:
        yield "allow skills"


def tool_lists(permissions: Permissions, approval: Approval, release: Release, users: Settings) -> Settings:
    """`tools` for this run: `allowed` approves, `exclude` forbids, `core` restricts."""
    theirs = users.get("tools")
    theirs = theirs if isinstance(theirs, dict) else {}
    allowed = [
        tool
        for capability in CAPABILITIES
        if getattr(permissions, capability) == "allow"
        for tool in tools_with(capability)
    ]
    allowed += permissions.allow_tools
    allowed += [f"{SHELL}({command})" for command in permissions.allow_commands]
    excluded = list(denied_tools(permissions))
    if approval != "yolo" and release.plan_mode:
        excluded += ["enter_plan_mode", "exit_plan_mode"]
    tools: dict[str, Any] = {}
    if allowed:
        tools["allowed"] = [*_list(theirs, "allowed"), *allowed]
    if excluded:
        tools["exclude"] = [*_list(theirs, "exclude"), *dict.fromkeys(excluded)]
    if permissions.only_tools:
        core = [tool for tool in permissions.only_tools if built_in(tool)]
        tools["core"] = [tool for tool in core if tool in (_list(theirs, "core") or core)]
    settings: Settings = {"tools": tools} if tools else {}
    if is_denied(permissions, "skills") and release.skills:
        settings["experimental"] = {"skills": False}
    return settings


def _list(tools: dict[str, Any], name: str) -> list[Any]:
    value = tools.get(name)
    return list(value) if isinstance(value, list) else []
