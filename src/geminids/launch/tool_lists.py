"""Permissions for releases before 0.34, where no policy lifts what is shut when headless: lists in the settings.

These can say less than rules can. What they cannot say is refused; it is never widened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from geminids.launch.permissions import denied_tools, fits, is_denied
from geminids.launch.settings import Settings
from geminids.launch.user_policies import UserPolicies
from geminids.options import CAPABILITIES, Approval, Permissions
from geminids.toolchain import Release
from geminids.toolchain.tools import built_in, is_mcp_name, known_as, tools_with

__all__ = ["cannot_say", "tool_lists"]


def cannot_say(permissions: Permissions, release: Release, theirs: UserPolicies) -> Iterator[str]:
    """What these permissions ask for that this release has no words for."""
    # An allowed command is searched for in all of a call's arguments: in an argument that the tool does not
    # know, it would approve any other command (seen on 0.24.0 and 0.32.1).
    commands = ("allow_commands", "deny_commands")
    yield from (name for name in commands if getattr(permissions, name))
    if any(is_mcp_name(tool) or "__" in tool for tool in permissions.only_tools):
        yield "only_tools with tools of MCP servers"
    if not release.policy_engine and permissions.allow_tools:
        yield "allow_tools"
    allowed = [capability for capability in CAPABILITIES if getattr(permissions, capability) == "allow"]
    if not release.policy_engine and allowed:
        yield f"allow {', '.join(allowed)}"
    if permissions.skills == "allow" and not release.skills:
        yield "allow skills"
    for tool in _allowed(permissions):
        if any(fits(tool, name) for name in theirs.partly):
            yield f"allow {tool} beside the user's own policy, which denies it for some arguments"


def _allowed(permissions: Permissions) -> tuple[str, ...]:
    tools = [
        tool
        for capability in CAPABILITIES
        if getattr(permissions, capability) == "allow"
        for tool in tools_with(capability)
    ]
    return tuple(dict.fromkeys((*tools, *permissions.allow_tools)))


def tool_lists(
    permissions: Permissions, approval: Approval, release: Release, users: Settings, denied: tuple[str, ...]
) -> Settings:
    """`tools` for this run: `allowed` approves, `exclude` forbids, `core` restricts.

    What is allowed in a list outranks many a policy: what the user's own deny is left out.
    """
    theirs = users.get("tools")
    theirs = theirs if isinstance(theirs, dict) else {}
    allowed = [tool for tool in _allowed(permissions) if not any(fits(tool, name) for name in denied)]
    excluded = list(denied_tools(permissions))
    if approval != "yolo" and release.plan_mode:
        excluded += ["enter_plan_mode", "exit_plan_mode"]
    tools: dict[str, Any] = {}
    # In yolo all is approved, and an entry here would take the redirections away from it.
    if allowed and approval != "yolo":
        tools["allowed"] = [*_list(theirs, "allowed"), *allowed]
    if excluded:
        tools["exclude"] = [*_list(theirs, "exclude"), *dict.fromkeys(excluded)]
    if permissions.only_tools:
        core = [name for tool in permissions.only_tools if built_in(tool) for name in known_as(tool)]
        tools["core"] = [tool for tool in core if tool in (_list(theirs, "core") or core)]
    settings: Settings = {"tools": tools} if tools else {}
    if permissions.skills is not None and release.skills:
        # Not there unless it is asked for, in 0.24.
        settings["experimental"] = {"skills": not is_denied(permissions, "skills")}
    return settings


def _list(tools: dict[str, Any], name: str) -> list[Any]:
    value = tools.get(name)
    return list(value) if isinstance(value, list) else []
