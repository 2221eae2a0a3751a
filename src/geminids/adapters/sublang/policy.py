"""Convert SubLang's options and permission policy to `Options`; refuse what cannot be enforced before the start."""

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

# The CLI's own scale ends here.
_EFFORTS = {"xhigh": "high", "max": "high"}
_CAPABILITIES = {"file_write": "file_write", "shell_execute": "shell", "network_access": "network"}
_LEVELS = ("allow", "ask", "deny")
_NO_TOOL = "no_tool_at_all"  # `only_tools` with none in it would restrict nothing
_NOT_IN_PATHS = re.compile(r"[*?\[\]{}$`!&|;<>()'\"~#\x00-\x1f\x7f]")
_FILE_TOOLS = tools_with("file_write")


def options_for(asked: AgentOptions, base: Options) -> Options:
    """Our options for a run; raises one `OptionsError` that names each option, and the index in a list."""
    problems = [*_problems(asked)]
    if problems:
        raise OptionsError(problems)
    policy = asked.permissions
    fields: dict[str, Any] = {
        "cwd": asked.cwd,
        "model": asked.model,
        "max_turns": asked.max_turns,
        "max_budget": asked.max_budget_usd,
        "effort": _EFFORTS.get(asked.effort or "", asked.effort),
        "resume": asked.resume or None,
        "approval": "yolo" if policy is not None and policy.mode else None,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return make_options(base, **given, permissions=_permissions(asked, base.permissions))


def _permissions(asked: AgentOptions, base: Permissions) -> Permissions:
    policy = asked.permissions
    fields: dict[str, Any] = {}
    if policy is not None and not policy.mode:
        fields = {ours: getattr(policy, theirs) or "ask" for theirs, ours in _CAPABILITIES.items()}
        if policy.writable_paths is not None and policy.file_write == "allow":
            fields["file_write"] = "ask"  # answered by the path, in GeminiAdapter
    denied = tuple(asked.disallowed_tools or ())
    if denied:
        fields["deny_tools"] = (*base.deny_tools, *(tool for tool in denied if tool not in base.deny_tools))
    if asked.allowed_tools is not None:
        fields |= _only(asked.allowed_tools, fields, fields.get("deny_tools", base.deny_tools))
    return msgspec.structs.replace(base, **fields)


def _only(allowed: tuple[str, ...], fields: dict[str, Any], denied: tuple[str, ...]) -> dict[str, Any]:
    """These tools and no other; each may be called, unless it is denied: an allow by name beats an `ask`."""
    gone = {
        *denied,
        *(tool for ours, level in fields.items() if level == "deny" for tool in tools_with(ours)),  # type: ignore[arg-type]
    }
    left = tuple(dict.fromkeys(tool for tool in allowed if tool not in gone))
    if not left:
        nothing = tuple(dict.fromkeys((*denied, *(tool.name for tool in BUILT_IN))))
        return {"only_tools": (_NO_TOOL,), "allow_tools": (), "deny_tools": nothing, "mcp": "deny"}
    lifted = {
        ours: None
        for ours in _CAPABILITIES.values()
        if fields.get(ours) in ("ask", "allow") and set(left) & set(tools_with(ours))  # type: ignore[arg-type]
    }
    return {"only_tools": left, "allow_tools": left, **lifted}


def _problems(asked: AgentOptions) -> Iterator[tuple[str, str]]:
    for name in ("allowed_tools", "disallowed_tools"):
        for index, tool in enumerate(getattr(asked, name) or ()):
            if what := _odd_name(tool):
                yield f"{name}[{index}]", what
    if asked.effort is not None and asked.effort not in ("minimal", "low", "medium", "high", *_EFFORTS):
        yield "effort", f"is {asked.effort!r}: it is minimal, low, medium, high, xhigh or max"
    if asked.max_budget_usd is not None and (what := dollars(asked.max_budget_usd)):
        yield "max_budget_usd", what
    if asked.permissions is not None:
        yield from _policy_problems(asked.permissions, asked.allowed_tools)


def _policy_problems(policy: PermissionPolicy, allowed: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    if policy.mode not in (None, "auto", "bypass"):
        yield "permissions.mode", f"is {policy.mode!r}: it is auto or bypass"
    for name in _CAPABILITIES:
        level = getattr(policy, name)
        if level is not None and level not in _LEVELS:
            yield f"permissions.{name}", f"is {level!r}: it is allow, ask or deny"
    for index, path in enumerate(policy.writable_paths or ()):
        if what := _odd_path(path):
            yield f"permissions.writable_paths[{index}]", what
    if policy.writable_paths is not None and not policy.mode and set(allowed or ()) & set(_FILE_TOOLS):
        yield "permissions.writable_paths", "cannot be held for a tool that allowed_tools lets write anywhere"


def _odd_name(tool: Any) -> str | None:
    if not isinstance(tool, str) or not tool.strip():
        return "is empty: a tool has a name"
    if "*" in tool:
        return "has a *: tools are named exactly"
    return "has half a character in it" if any("\ud800" <= letter <= "\udfff" for letter in tool) else None


def _odd_path(path: Any) -> str | None:
    if not isinstance(path, str) or not path:
        return "is empty"
    plain = path.replace("\\", "/")
    if plain.startswith("/") or re.match(r"[A-Za-z]:", plain):
        return f"is {path!r}: a path is relative to the folder"
    if _NOT_IN_PATHS.search(plain):
        return f"is {path!r}: no globs, shell or control characters"
    parts = plain.removesuffix("/").split("/")
    if ".." in parts or "" in parts:
        return f"is {path!r}: neither .. nor an empty part"
    return None if any(part != "." for part in parts) else f"is {path!r}: the folder itself"


def writable_folders(policy: PermissionPolicy | None, cwd: str) -> tuple[Path, ...] | None:
    """Where files may be written; None where the policy does not say so, or is not asked."""
    if policy is None or policy.mode or policy.writable_paths is None:
        return None
    parts = [path.replace("\\", "/").split("/") for path in policy.writable_paths]
    return tuple(Path(os.path.realpath(Path(cwd, *part))) for part in parts)


def is_within(asked: PermissionAsked, folders: tuple[Path, ...]) -> bool:
    """Whether all that a call would write lies in these folders, links followed."""
    paths = [Path(os.path.realpath(Path(asked.cwd or ".", path))) for path in asked.paths]
    return bool(paths) and all(any(path.is_relative_to(one) for one in folders) for path in paths)
