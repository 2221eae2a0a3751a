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
from geminids.toolchain.tools import SHELL, built_in, is_mcp_name, known_as, tools_with

__all__ = ["cannot_say", "tool_lists"]


def cannot_say(permissions: Permissions, release: Release, theirs: UserPolicies) -> Iterator[str]:
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
    for tool in _allowed(permissions):
        if any(fits(tool, name) for name in theirs.partly):
            yield f"allow {tool} beside the user's own policy, which denies it for some arguments"


def _allowed(permissions: Permissions) -> dict[str, list[str]]:
    """Each tool that is allowed, as it is written in the list."""
    tools = [
        tool
        for capability in CAPABILITIES
        if getattr(permissions, capability) == "allow"
        for tool in tools_with(capability)
    ]
    written = {tool: [tool] for tool in (*tools, *permissions.allow_tools)}
    if permissions.allow_commands and SHELL not in written:
        written[SHELL] = [f"{SHELL}({command.strip()})" for command in permissions.allow_commands]
    return written


def tool_lists(
    permissions: Permissions, approval: Approval, release: Release, users: Settings, denied: tuple[str, ...]
) -> Settings:
    """`tools` for this run: `allowed` approves, `exclude` forbids, `core` restricts.

    What is allowed in a list outranks many a policy: what the user's own deny is left out.
    """
    theirs = users.get("tools")
    theirs = theirs if isinstance(theirs, dict) else {}
    allowed = [
        text
        for tool, texts in _allowed(permissions).items()
        if not any(fits(tool, name) for name in denied)
        for text in texts
    ]
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
