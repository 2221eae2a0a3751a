"""Permissions as rules of the CLI's policy engine (0.30 and newer), and the user's own rules beside them.

All of them stand in the user's tier. There the first rule that fits decides, by priority: our denies come first,
then whatever the user has said, then our allows. So a caller can take away from what the user allows, and can add
only what the user has not spoken about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from geminids.launch.permissions import denied_tools, is_denied, modes_of
from geminids.launch.settings import Settings, SettingsProblem
from geminids.options import CAPABILITIES, Approval, Permissions
from geminids.toolchain import Release
from geminids.toolchain.tools import SHELL, built_in, is_mcp_name, tools_with

__all__ = ["Rule", "our_rules", "policy_text", "user_policies"]

_DENY, _ALLOW, _REST = 999, 2, 1
# What is left for the user's own rules, between ours.
_LOWEST, _HIGHEST = 3, 997
_NAMES: dict[Approval, str] = {"default": "default", "auto_edit": "autoEdit", "yolo": "yolo", "plan": "plan"}
_WORKING: tuple[Approval, ...] = ("default", "auto_edit", "yolo")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[rule]]`."""

    tools: tuple[str, ...]
    decision: str
    priority: int
    modes: tuple[Approval, ...] = ()
    commands: tuple[str, ...] = ()
    redirection: bool = False
    server: str | None = None
    message: str | None = None

    def fields(self) -> dict[str, Any]:
        return {
            "toolName": list(self.tools),
            **({"mcpName": self.server} if self.server else {}),
            **({"commandPrefix": list(self.commands)} if self.commands else {}),
            "decision": self.decision,
            "priority": self.priority,
            **({"modes": [_NAMES[mode] for mode in self.modes]} if self.modes else {}),
            **({"allowRedirection": True} if self.redirection else {}),
            **({"denyMessage": self.message} if self.message else {}),
        }


def our_rules(permissions: Permissions, approval: Approval, release: Release) -> tuple[Rule, ...]:
    """The rules of a run. There are always some: no mode but `yolo` may end in `yolo`."""
    return (*_denies(permissions, approval, release), *_allows(permissions, release), *_only(permissions))


def _denies(permissions: Permissions, approval: Approval, release: Release) -> Iterator[Rule]:
    by_reason: dict[str, list[str]] = {}
    for tool, why in denied_tools(permissions).items():
        by_reason.setdefault("not in only_tools" if why.endswith("not in only_tools") else why, []).append(
            tool
        )
    if approval != "yolo" and release.plan_mode:
        # Leaving plan mode sets a headless run to yolo, with nobody asked (core/src/tools/exit-plan-mode.ts,
        # getAllowApprovalMode): a run that may only read could enter it, leave it and do anything.
        by_reason[f"approval={approval} stays as it is"] = ["exit_plan_mode", "enter_plan_mode"]
    for why, tools in by_reason.items():
        yield Rule(tools=tuple(tools), decision="deny", priority=_DENY, message=why)
    if release.mcp_prefix and (is_denied(permissions, "mcp") or _only_built_in(permissions)):
        why = "not in only_tools" if permissions.only_tools else "mcp is not allowed"
        yield Rule(tools=("mcp_*",), decision="deny", priority=_DENY, message=why)
    if permissions.deny_commands:
        why = "in deny_commands"
        yield Rule(
            tools=(SHELL,), commands=permissions.deny_commands, decision="deny", priority=_DENY, message=why
        )
    for server in permissions.deny_servers:
        yield _of_server(server, "deny", _DENY, release)


def _allows(permissions: Permissions, release: Release) -> Iterator[Rule]:
    for capability in CAPABILITIES:
        if getattr(permissions, capability) == "allow":
            modes = _WORKING if capability in ("file_write", "shell") else (*_WORKING, "plan")
            redirection = capability == "shell" and not is_denied(permissions, "file_write")
            tools = tools_with(capability)
            yield Rule(tools=tools, decision="allow", priority=_ALLOW, modes=modes, redirection=redirection)
    if permissions.mcp == "allow" and release.mcp_prefix:
        yield Rule(tools=("mcp_*",), decision="allow", priority=_ALLOW, modes=(*_WORKING, "plan"))
    for tool in permissions.allow_tools:
        redirection = tool == SHELL and not is_denied(permissions, "file_write")
        yield Rule(tools=(tool,), decision="allow", priority=_ALLOW, modes=_WORKING, redirection=redirection)
    if permissions.allow_commands:
        yield Rule(
            tools=(SHELL,),
            commands=permissions.allow_commands,
            decision="allow",
            priority=_ALLOW,
            modes=_WORKING,
            # `git log > /elsewhere` writes a file, and is no more than a way to begin with `git log`.
            redirection=permissions.file_write == "allow",
        )
    for server in permissions.allow_servers:
        yield _of_server(server, "allow", _ALLOW, release)


def _only(permissions: Permissions) -> Iterator[Rule]:
    """What is named keeps what its mode gives it; all else goes, tools that we have never heard of included."""
    if not permissions.only_tools:
        return
    for tool in permissions.only_tools:
        modes = modes_of(built_in(tool))
        if modes:
            shell = tool == SHELL
            yield Rule(tools=(tool,), decision="allow", priority=_ALLOW, modes=modes, redirection=shell)
    yield Rule(tools=("*",), decision="deny", priority=_REST, message="not in only_tools")


def _only_built_in(permissions: Permissions) -> bool:
    return bool(permissions.only_tools) and not any(map(is_mcp_name, permissions.only_tools))


def _of_server(server: str, decision: str, priority: int, release: Release) -> Rule:
    tool = f"mcp_{server}_*" if release.mcp_prefix else f"{server}__*"
    modes = (*_WORKING, "plan") if decision == "allow" else ()
    return Rule(tools=(tool,), server=server, decision=decision, priority=priority, modes=modes)


def policy_text(rules: Sequence[dict[str, Any]], checkers: Sequence[dict[str, Any]] = ()) -> str:
    """Rules as TOML."""
    tables = [("rule", rule) for rule in rules] + [("safety_checker", checker) for checker in checkers]
    return "\n".join(
        f"[[{name}]]\n" + "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())
        for name, table in tables
    )


def _key(key: str) -> str:
    return key if key.replace("_", "a").replace("-", "a").isalnum() and key.isascii() else _value(key)


def _value(value: Any) -> str:
    # Not tomlkit: its import costs more than all of our planning.
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value) if isinstance(value, (bool, int, float)) else _value(str(value))


def user_policies(gemini: Path, settings: Settings) -> tuple[tuple[str, ...], str | None]:
    """The user's own policies, which `--policy` replaces: paths to name beside ours, or a text that stands for them.

    A text is needed where a rule of theirs has a priority that we need for ours: the order of theirs is kept.
    """
    named = settings.get("policyPaths")
    paths = (
        [Path(path).expanduser() for path in named if isinstance(path, str)]
        if isinstance(named, list)
        else []
    )
    sources = paths or [gemini / "policies"]
    files = [file for path in sources for file in _toml_files(path)]
    if not files:
        return (), None
    rules, checkers = [], []
    for file in files:
        content = _read(file)
        rules += [rule for rule in content.get("rule", ()) if isinstance(rule, dict)]
        checkers += [checker for checker in content.get("safety_checker", ()) if isinstance(checker, dict)]
    if all(_LOWEST <= _priority(rule) <= _HIGHEST for rule in (*rules, *checkers)):
        return tuple(str(file) for file in files), None
    return (), policy_text(_in_order(rules), _in_order(checkers))


def _in_order(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The engine sorts by priority and keeps the order of equals: sorted here, equals may be made."""
    ordered = sorted(rules, key=_priority, reverse=True)
    return [{**rule, "priority": min(max(_priority(rule), _LOWEST), _HIGHEST)} for rule in ordered]


def _priority(rule: dict[str, Any]) -> int:
    value = rule.get("priority", 0)
    return value if isinstance(value, int) else 0


def _toml_files(path: Path) -> list[Path]:
    try:
        if path.is_file():
            return [path]
        return sorted(file for file in path.iterdir() if file.suffix == ".toml")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SettingsProblem(f"the policies in {path} cannot be read: {error.strerror}") from None


def _read(file: Path) -> dict[str, Any]:
    import tomllib  # imported late: most users have no policies

    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        # The CLI would pass over it, and with it over a deny.
        raise SettingsProblem(f"the policy {file} cannot be read: {error}") from None
