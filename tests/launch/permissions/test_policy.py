"""Tests of policy rules: permissions become valid TOML rules that the CLI's policy engine
accepts."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from geminids.launch.permissions.policy import Rule, our_rules, policy_text, too_long
from geminids.options import Approval, Permissions
from geminids.options.permissions import Power

# The engine drops a rule whose expression matches this (core/src/policy/utils.ts, isSafeRegExp).
_REFUSED = re.compile(r"\([^)]*[*+?{].*\)[*+?{]")

_POWER = st.sampled_from([None, *get_args(Power)])
_APPROVAL = st.sampled_from(get_args(Approval))
_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)
_COMMAND = _TEXT.filter(lambda text: bool(text.strip()))
_TOOL = st.sampled_from(["write_file", "run_shell_command", "mcp_a_b", "new_tool"])


def _some(element: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(element, max_size=3).map(tuple)


_PERMISSIONS = st.builds(
    Permissions,
    **dict.fromkeys(("file_write", "shell", "network", "mcp", "skills"), _POWER),
    **dict.fromkeys(("allow_tools", "only_tools", "deny_tools"), _some(_TOOL | _TEXT)),
    **dict.fromkeys(("allow_commands", "deny_commands"), _some(_COMMAND)),
    **dict.fromkeys(("allow_servers", "deny_servers"), _some(_TEXT)),
)


# A slow machine is no error.
_allow_slow = settings(suppress_health_check=[HealthCheck.too_slow])


def _rules(approval: Approval = "default", **permissions: Any) -> tuple[Rule, ...]:
    return our_rules(Permissions(**permissions), approval)


def _encode_arguments(**fields: Any) -> str:
    """Encode the arguments of a call as the policy engine does before it matches an expression."""
    return (
        "{"
        + ",".join(f"\0{json.dumps(k)}:{json.dumps(v, ensure_ascii=False)}\0" for k, v in fields.items())
        + "}"
    )


def _matches(rule: Rule, **fields: Any) -> bool:
    assert rule.arguments is not None
    return re.search(rule.arguments, _encode_arguments(**fields)) is not None


@_allow_slow
@given(_PERMISSIONS, _APPROVAL)
def test_the_policy_file_is_read_back(permissions: Permissions, approval: Approval) -> None:
    """For any names and commands, the policy file is TOML that is read back as the same rules."""
    rules = [rule.fields() for rule in our_rules(permissions, approval)]
    assert tomllib.loads(policy_text(rules)).get("rule", []) == rules


@_allow_slow
@given(_PERMISSIONS, _APPROVAL)
def test_rules_are_valid_for_the_engine(permissions: Permissions, approval: Approval) -> None:
    """Each rule has a tool, a decision, a priority from 0 to 999 and known modes, and an expression
    that the engine accepts."""
    assume(not list(too_long(permissions)))
    for rule in our_rules(permissions, approval):
        fields = rule.fields()
        assert fields["toolName"]
        assert fields["decision"] in ("allow", "deny")
        assert 0 <= fields["priority"] <= 999
        assert set(fields.get("modes", ())) <= {"default", "autoEdit", "yolo", "plan"}
        assert len(rule.arguments or "") <= 2048
        assert not _REFUSED.search(rule.arguments or "")


@_allow_slow
@given(_PERMISSIONS, _APPROVAL)
def test_the_priorities_of_our_rules(permissions: Permissions, approval: Approval) -> None:
    """Our denies have priority 999 and our allows 2; a rule for all tools has 1.

    The user's own rules are between 3 and 997.
    """
    for rule in our_rules(permissions, approval):
        last = rule.tools == ("*",) and rule.server is None
        assert rule.priority == (1 if last else {"deny": 999, "allow": 2}[rule.decision])


@_allow_slow
@given(_PERMISSIONS)
def test_plan_mode_allows_no_writes(permissions: Permissions) -> None:
    """In plan mode no rule of ours allows file writes, shells or unknown tools."""
    for rule in our_rules(permissions, "plan"):
        if rule.decision == "allow" and "plan" in rule.modes and rule.server is None:
            assert not {"write_file", "replace", "run_shell_command", "new_tool"} & set(rule.tools)


@_allow_slow
@given(_COMMAND, _COMMAND)
@example("git status", "x")
@example('echo "a(b)* [c]', "x\ty")
def test_an_allowed_command_matches_at_the_beginning(command: str, more: str) -> None:
    """An allowed command matches at the beginning of the command, with or without arguments, and
    nowhere else."""
    rule = next(rule for rule in _rules(allow_commands=(command,)) if rule.arguments)
    command = command.strip()
    assert _matches(rule, command=command)
    assert _matches(rule, command=f"{command} {more}")
    assert not _matches(rule, command=f"touch x; {command}")
    assert not _matches(rule, command="touch x", description=command, zz={"command": command})
    assert not _matches(rule, a={"command": command}, command="touch x")
    assert not _matches(rule, command=f"{command}x")


@_allow_slow
@given(_COMMAND, _COMMAND)
@example("git push", "x")
@example("rm -r", "f x")
def test_a_denied_command_matches(command: str, more: str) -> None:
    """A denied command matches with arguments, after blanks, by its path, and with tabs or
    continued lines between its words."""
    rule = next(rule for rule in _rules("yolo", deny_commands=(f" {command} ",)) if rule.arguments)
    words = command.split()
    for run in (
        " ".join(words),
        f"  {' '.join(words)}",
        f"{' '.join(words)} {more}",
        f"{' '.join(words)}\t{more}",
        "/usr/bin/" + "\t".join(words),
        " \\\n ".join(words),
    ):
        assert _matches(rule, command=run), run


@pytest.mark.parametrize(
    ("denied", "run", "is_found"),
    [
        ("rm", "rmdir x", False),
        ("rm", "rm-all", False),
        ("rm", "echo rm", False),
        ("rm", "rm;ls", True),
        ("rm -r", "rm -rf x", True),
        ("rm -r", "rm -f x", False),
        ("docker run --rm=", "docker run --rm=true", True),
        ("git push", "git pushy", False),
    ],
)
def test_where_a_denied_command_ends(denied: str, run: str, is_found: bool) -> None:
    """A denied command matches whole words, but its last option also matches with further
    letters."""
    [rule] = [rule for rule in _rules("yolo", deny_commands=(denied,)) if rule.arguments]
    assert _matches(rule, command=run) == is_found


def test_a_command_that_is_too_long_is_reported() -> None:
    """A command that is too long for a rule is reported, because the engine would drop the rule
    without a message."""
    assert not list(too_long(Permissions(deny_commands=("rm",), allow_commands=("git status",))))
    assert len(list(too_long(Permissions(deny_commands=("x" * 3000,), allow_commands=("a " * 200,))))) == 2


@pytest.mark.parametrize("approval", get_args(Approval))
def test_plan_mode_tools_are_denied_outside_yolo(approval: Approval) -> None:
    """Outside yolo mode, the tools that enter and leave plan mode are denied, because leaving it
    could change the mode to yolo."""
    denied = {tool for rule in _rules(approval) if rule.decision == "deny" for tool in rule.tools}
    assert denied == (set() if approval == "yolo" else {"enter_plan_mode", "exit_plan_mode"})


def test_rules_for_servers() -> None:
    """A rule for a server has `mcpName` and the tool `*`, because the engine puts the server's name
    before any other `toolName`."""
    [rule] = _rules("yolo", allow_servers=("lab",))
    assert rule.fields() == {
        "toolName": "*",
        "mcpName": "lab",
        "decision": "allow",
        "priority": 2,
        "modes": ["default", "autoEdit", "yolo", "plan"],
    }


def test_only_tools() -> None:
    """`only_tools` allows the named tools in the modes that allow them, and denies all others.

    Old names of a named tool are not denied.
    """
    rules = _rules("yolo", only_tools=("grep_search", "write_file"))
    denied = {tool for rule in rules if rule.decision == "deny" and not rule.server for tool in rule.tools}
    assert {"read_file", "run_shell_command", "*"} <= denied
    assert not {"grep_search", "search_file_content", "write_file"} & denied
    [write] = [rule for rule in rules if rule.tools == ("write_file",)]
    assert (write.decision, write.modes) == ("allow", ("auto_edit", "yolo"))
    assert ("*", "deny", 999) in {(rule.server, rule.decision, rule.priority) for rule in rules}


@pytest.mark.parametrize(
    ("permissions", "redirects"),
    [
        ({"shell": "allow"}, True),
        ({"shell": "allow", "file_write": "deny"}, False),
        ({"shell": "allow", "file_write": "ask"}, False),
        ({"allow_tools": ("run_shell_command",)}, True),
        ({"allow_commands": ("ls",)}, False),
        ({"allow_commands": ("ls",), "file_write": "allow"}, True),
    ],
)
def test_rules_that_allow_redirection(permissions: dict[str, Any], redirects: bool) -> None:
    """An allowed shell may redirect unless file writes are denied.

    An allowed command may redirect only if file writes are allowed.
    """
    [rule] = [rule for rule in _rules(**permissions) if "run_shell_command" in rule.tools]
    assert rule.fields().get("allowRedirection", False) == redirects
