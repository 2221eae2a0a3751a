"""Translate the permissions of a run into rules of the CLI's policy engine.

If several rules match a call, the one with the highest priority decides. Our deny rules have a
higher priority than the user's rules, and our allow rules a lower one. So a caller can deny what
the user allows, but can allow only calls that no rule of the user matches.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from geminids.gemini.tools import SHELL, built_in, is_mcp_name, tools_with
from geminids.launch.permissions.verdicts import (
    allowable_modes,
    capability_of,
    denied_tools,
    is_denied,
    modes_of,
)
from geminids.options import CAPABILITIES, Approval, Permissions

__all__ = ["ASK", "DENY", "REST", "Rule", "banned", "our_rules", "policy_text", "too_long"]

DENY, ASK, _ALLOW, REST = 999, 998, 2, 1
_LONGEST = 2048
_IN_NAMES = string.ascii_letters + string.digits + "_.-"
_NAMES: dict[Approval, str] = {"default": "default", "auto_edit": "autoEdit", "yolo": "yolo", "plan": "plan"}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of a policy file (a `[[rule]]` table).

    `modes` are the approval modes in which the rule applies; if `modes` is empty, it applies in all
    modes. `redirection` is True if the rule also allows shell commands that redirect their input or
    output.
    """

    tools: tuple[str, ...]
    decision: str
    priority: int
    modes: tuple[Approval, ...] = ()
    arguments: str | None = None
    """A regular expression for the arguments of a call.

    The policy engine writes the arguments as JSON with sorted keys.
    """
    redirection: bool = False
    server: str | None = None
    agent: str | None = None
    """The only subagent to whose calls the rule applies; None for all calls."""
    message: str | None = None

    def fields(self) -> dict[str, Any]:
        return {
            "toolName": self.tools[0] if len(self.tools) == 1 else list(self.tools),
            **({"mcpName": self.server} if self.server else {}),
            **({"subagent": self.agent} if self.agent else {}),
            **({"argsPattern": self.arguments} if self.arguments else {}),
            "decision": self.decision,
            "priority": self.priority,
            **({"modes": [_NAMES[mode] for mode in self.modes]} if self.modes else {}),
            **({"allowRedirection": True} if self.redirection else {}),
            **({"denyMessage": self.message} if self.message else {}),
        }


def our_rules(permissions: Permissions, approval: Approval, *, warm: bool = False) -> tuple[Rule, ...]:
    """Return the policy rules for the permissions of a run.

    `warm` is True for a warm process. The result can be empty only in the mode `yolo`. In every
    other mode, there are rules that keep the agent from changing the mode to `yolo`.
    """
    return (*_denies(permissions, approval, warm), *_allows(permissions), *_only(permissions))


def too_long(permissions: Permissions) -> Iterator[str]:
    """Yield a message for each command in the permissions that is too long for a policy rule.

    The policy engine ignores regular expressions of more than 2048 characters (isSafeRegExp).
    """
    for command in (*permissions.allow_commands, *permissions.deny_commands):
        if max(len(_allowed_begin(command)), len(banned(command))) > _LONGEST:
            yield f"the command {command[:40]!r}... is too long for a rule of the policy engine; shorten the command"


def _denies(permissions: Permissions, approval: Approval, warm: bool) -> Iterator[Rule]:
    by_reason: dict[str, list[str]] = {}
    for tool, why in denied_tools(permissions, warm=warm).items():
        by_reason.setdefault(why, []).append(tool)
    if approval != "yolo":
        # If a headless run leaves plan mode, it changes to `yolo` without asking
        # (core/src/tools/exit-plan-mode.ts, getAllowApprovalMode). So a run that may only read
        # could enter plan mode, leave it, and then do anything.
        reason = (
            "the agent cannot change the approval mode"
            if warm
            else f"the agent cannot change the approval mode, which is {approval}"
        )
        by_reason[reason] = ["exit_plan_mode", "enter_plan_mode"]
    for why, tools in by_reason.items():
        yield Rule(tools=tuple(tools), decision="deny", priority=DENY, message=why)
    if is_denied(permissions, "mcp") or _only_built_in(permissions):
        why = "not in `only_tools`" if permissions.only_tools else "mcp is not allowed"
        yield _server_rule("*", "deny", message=why)
    for command in permissions.deny_commands:
        why = "in `deny_commands`"
        yield Rule(tools=(SHELL,), arguments=banned(command), decision="deny", priority=DENY, message=why)
    for server in permissions.deny_servers:
        yield _server_rule(server, "deny")


def _allows(permissions: Permissions) -> Iterator[Rule]:
    for capability in CAPABILITIES:
        if getattr(permissions, capability) == "allow":
            yield _allowed(permissions, tools_with(capability), capability)
    if permissions.mcp == "allow":
        yield _server_rule("*", "allow")
    for tool in permissions.allow_tools:
        yield _allowed(permissions, (tool,), capability_of(tool))
    for command in permissions.allow_commands:
        yield Rule(
            tools=(SHELL,),
            arguments=_allowed_begin(command),
            decision="allow",
            priority=_ALLOW,
            modes=allowable_modes("shell"),
            # `git log > /elsewhere` starts with the allowed `git log`, but writes a file.
            redirection=permissions.file_write == "allow",
        )
    for server in permissions.allow_servers:
        yield _server_rule(server, "allow")


def _allowed(permissions: Permissions, tools: tuple[str, ...], capability: str | None) -> Rule:
    redirection = SHELL in tools and not is_denied(permissions, "file_write")
    modes = allowable_modes(capability)
    return Rule(tools=tools, decision="allow", priority=_ALLOW, modes=modes, redirection=redirection)


def _allowed_begin(command: str) -> str:
    """Return a regular expression for calls whose shell command starts with `command`.

    The rule's field `commandPrefix` would be unsafe: it also matches a nested argument with the
    name "command".
    """
    return rf'^\{{\x00?"command":"{_escaped(command)}[\s"]'


def banned(command: str) -> str:
    """Return a regular expression for calls whose shell command starts with the denied `command`.

    The expression matches more commands than the rule's field `commandPrefix`: also commands with
    tabs or line breaks between words, or with a path before the program's name. It contains no
    repeated group, because the policy engine ignores expressions with repeated groups.
    """
    words = command.split()
    # The entry `rm -r` also denies `rm -rf`, but the entry `rm` does not deny `rmdir`.
    end = "" if words[-1].startswith("-") or words[-1][-1] not in _IN_NAMES else r"(?![\w.\-])"
    return r'"command":"\s*(?:|[^\s"]*/)' + r"(?:\s|\\)[\s\\nrt]*".join(map(_escaped, words)) + end


def _escaped(text: str) -> str:
    """Encode the text as JSON, and escape it for a JavaScript regular expression."""
    return re.escape(json.dumps(text.strip(), ensure_ascii=False)[1:-1])


def _only(permissions: Permissions) -> Iterator[Rule]:
    """Yield the rules for the permission `only_tools`.

    The tools in `only_tools` are allowed in the same approval modes as without `only_tools`. All
    other tools are denied, including tools that we do not know.
    """
    if not permissions.only_tools:
        return
    for tool in permissions.only_tools:
        modes = modes_of(built_in(tool))
        if modes:
            shell = tool == SHELL
            yield Rule(tools=(tool,), decision="allow", priority=_ALLOW, modes=modes, redirection=shell)
    yield Rule(tools=("*",), decision="deny", priority=REST, message="not in `only_tools`")


def _only_built_in(permissions: Permissions) -> bool:
    return bool(permissions.only_tools) and not any(map(is_mcp_name, permissions.only_tools))


def _server_rule(server: str, decision: str, *, message: str | None = None) -> Rule:
    """Return a rule for all tools of the MCP server `server`, or of all servers if it is `*`."""
    priority, modes = (_ALLOW, allowable_modes("mcp")) if decision == "allow" else (DENY, ())
    return Rule(
        tools=("*",), server=server, decision=decision, priority=priority, modes=modes, message=message
    )


def policy_text(rules: Sequence[dict[str, Any]], checkers: Sequence[dict[str, Any]] = ()) -> str:
    """Format the rules and the safety checkers of a policy file as TOML."""
    tables = [("rule", rule) for rule in rules] + [("safety_checker", checker) for checker in checkers]
    return "\n".join(
        f"[[{name}]]\n" + "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())
        for name, table in tables
    )


def _key(key: str) -> str:
    return key if key.replace("_", "a").replace("-", "a").isalnum() and key.isascii() else _value(key)


def _value(value: Any) -> str:
    # Do not use tomlkit: its import takes longer than everything else in `prepare`.
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value) if isinstance(value, (bool, int, float)) else _value(str(value))
