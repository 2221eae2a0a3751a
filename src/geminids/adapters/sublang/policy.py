"""Convert SubLang's options and permission policy to `Options`. Options that geminids cannot
enforce are rejected."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from geminids.adapters.sublang.options import AgentOptions, PermissionPolicy
from geminids.errors import OptionsError
from geminids.events.model import PermissionAsked
from geminids.gemini.tools import BUILT_IN, tools_with
from geminids.options import Options, Permissions, make_options
from geminids.options.values import dollars

__all__ = ["is_within", "options_for", "writable_folders"]

# `high` is the CLI's highest effort.
_EFFORTS = {"xhigh": "high", "max": "high"}
_CAPABILITIES = {"file_write": "file_write", "shell_execute": "shell", "network_access": "network"}
_LEVELS = ("allow", "ask", "deny")
# A name that no tool has: an empty `only_tools` would not restrict the agent.
_NO_TOOL = "no_tool_at_all"
_NOT_IN_PATHS = re.compile(r"[*?\[\]{}$`!&|;<>()'\"~#\x00-\x1f\x7f]")
_FILE_TOOLS = tools_with("file_write")


def options_for(requested: AgentOptions, base: Options) -> Options:
    """Return the geminids options for SubLang's options. `base` contains the values of all options
    that `requested` does not set.

    If options are invalid, raises one `OptionsError` that names all of them, for example
    `allowed_tools[2]`.
    """
    problems = [*_problems(requested, base)]
    if problems:
        raise OptionsError(problems)
    policy = requested.permissions
    fields: dict[str, Any] = {
        "cwd": requested.cwd,
        "model": requested.model,
        "max_turns": requested.max_turns,
        "max_budget": requested.max_budget_usd,
        "effort": _EFFORTS.get(requested.effort or "", requested.effort),
        "resume": requested.resume or None,
        "approval": "yolo" if policy is not None and policy.mode else None,
    }
    overrides = {name: value for name, value in fields.items() if value is not None}
    return make_options(base, **overrides, permissions=_permissions(requested, base.permissions))


def _permissions(requested: AgentOptions, base: Permissions) -> Permissions:
    policy = requested.permissions
    fields: dict[str, Any] = {}
    if policy is not None and not policy.mode:
        fields = {ours: getattr(policy, theirs) or "ask" for theirs, ours in _CAPABILITIES.items()}
        if policy.writable_paths is not None and policy.file_write == "allow":
            fields["file_write"] = "ask"  # `GeminiAdapter` answers each request by its path
    denied = tuple(requested.disallowed_tools or ())
    if denied:
        fields["deny_tools"] = (*base.deny_tools, *(tool for tool in denied if tool not in base.deny_tools))
    if requested.allowed_tools is not None:
        asked = {ours for theirs, ours in _CAPABILITIES.items() if getattr(policy, theirs, None) == "ask"}
        fields |= _only(requested.allowed_tools, fields, fields.get("deny_tools", base.deny_tools), asked)
    return msgspec.structs.replace(base, **fields)


def _only(
    allowed: tuple[str, ...], fields: dict[str, Any], denied: tuple[str, ...], asked: set[str]
) -> dict[str, Any]:
    """Return fields of `Permissions` that let the agent use only the tools in `allowed`.

    These tools stay forbidden: the tools in `denied`, and the tools of each capability whose level
    in `fields` is `deny`. The tools of the capabilities in `asked` need permission for each call.
    All other tools in `allowed` are used without asking.
    """
    excluded = {
        *denied,
        *(tool for ours, level in fields.items() if level == "deny" for tool in tools_with(ours)),  # type: ignore[arg-type]
    }
    remaining = tuple(dict.fromkeys(tool for tool in allowed if tool not in excluded))
    if not remaining:
        all_tools = tuple(dict.fromkeys((*denied, *(tool.name for tool in BUILT_IN))))
        return {"only_tools": (_NO_TOOL,), "allow_tools": (), "deny_tools": all_tools, "mcp": "deny"}
    lifted = {
        ours: None
        for ours in _CAPABILITIES.values()
        if ours not in asked
        and fields.get(ours) in ("ask", "allow")
        and set(remaining) & set(tools_with(ours))  # type: ignore[arg-type]
    }
    needs_permission = {tool for ours in asked for tool in tools_with(ours)}  # type: ignore[arg-type]
    approved = tuple(tool for tool in remaining if tool not in needs_permission)
    return {"only_tools": remaining, "allow_tools": approved, **lifted}


def _problems(requested: AgentOptions, base: Options) -> Iterator[tuple[str, str]]:
    cwd = requested.cwd
    if isinstance(cwd, str) and cwd and not base.make_cwd and not os.path.exists(cwd):
        # Report this here: the check of `Options` would advise `make_cwd`, which `AgentOptions` do
        # not have.
        yield "cwd", f"{cwd} does not exist; create the folder first"
    for name in ("allowed_tools", "disallowed_tools"):
        for index, tool in enumerate(getattr(requested, name) or ()):
            if problem := _name_problem(tool):
                yield f"{name}[{index}]", problem
    if requested.effort is not None and requested.effort not in (
        "minimal",
        "low",
        "medium",
        "high",
        *_EFFORTS,
    ):
        yield "effort", f"is {requested.effort!r}; use minimal, low, medium, high, xhigh or max"
    if requested.max_budget_usd is not None and (problem := dollars(requested.max_budget_usd)):
        yield "max_budget_usd", problem
    if requested.permissions is not None:
        yield from _policy_problems(requested.permissions, requested.allowed_tools)


def _policy_problems(policy: PermissionPolicy, allowed: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    if policy.mode not in (None, "auto", "bypass"):
        yield "permissions.mode", f"is {policy.mode!r}; use auto or bypass"
    for name in _CAPABILITIES:
        level = getattr(policy, name)
        if level is not None and level not in _LEVELS:
            yield f"permissions.{name}", f"is {level!r}; use allow, ask or deny"
    for index, path in enumerate(policy.writable_paths or ()):
        if problem := _path_problem(path):
            yield f"permissions.writable_paths[{index}]", problem
    if policy.writable_paths is not None and not policy.mode and set(allowed or ()) & set(_FILE_TOOLS):
        yield (
            "permissions.writable_paths",
            "cannot be enforced: allowed_tools contains a tool that can write to all folders",
        )


def _name_problem(tool: Any) -> str | None:
    if not isinstance(tool, str) or not tool.strip():
        return "is empty; use the name of a tool"
    if "*" in tool:
        return "contains *; use the exact name of a tool"
    return "contains a lone surrogate" if any("\ud800" <= letter <= "\udfff" for letter in tool) else None


def _path_problem(path: Any) -> str | None:
    if not isinstance(path, str) or not path:
        return "is empty"
    plain = path.replace("\\", "/")
    if plain.startswith("/") or re.match(r"[A-Za-z]:", plain):
        return f"is the absolute path {path!r}; use a path relative to the working folder"
    if _NOT_IN_PATHS.search(plain):
        return f"is {path!r}; glob patterns, shell characters and control characters are not allowed"
    parts = plain.removesuffix("/").split("/")
    if ".." in parts or "" in parts:
        return f"is {path!r}; .. and empty parts are not allowed"
    return None if any(part != "." for part in parts) else f"is {path!r}, which is the working folder itself"


def writable_folders(policy: PermissionPolicy | None, cwd: str) -> tuple[Path, ...] | None:
    """Return the folders that the agent may write to; None if the policy does not restrict them."""
    if policy is None or policy.mode or policy.writable_paths is None:
        return None
    parts = [path.replace("\\", "/").split("/") for path in policy.writable_paths]
    return tuple(Path(os.path.realpath(Path(cwd, *part))) for part in parts)


def is_within(request: PermissionAsked, folders: tuple[Path, ...]) -> bool:
    """Return whether the tool call of a permission request writes only inside `folders`. Symbolic
    links are resolved first. Return False if the request names no path."""
    paths = [Path(os.path.realpath(Path(request.cwd or ".", path))) for path in request.paths]
    return bool(paths) and all(any(path.is_relative_to(folder) for folder in folders) for path in paths)
