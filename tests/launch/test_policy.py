"""Permissions as rules: valid TOML that says what it must, and expressions that the engine keeps."""

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

# A rule with an expression like this, or a longer one, is dropped (core/src/policy/utils.ts, isSafeRegExp).
_UNSAFE = re.compile(r"\([^)]*[*+?{].*\)[*+?{]")

_POWER = st.sampled_from([None, *get_args(Power)])
_APPROVAL = st.sampled_from(get_args(Approval))
_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)
_COMMAND = _TEXT.filter(lambda text: bool(text.strip()))
_TOOL = st.sampled_from(["write_file", "run_shell_command", "mcp_a_b", "new_tool"])


def _some(of: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(of, max_size=3).map(tuple)


_PERMISSIONS = st.builds(
    Permissions,
    **dict.fromkeys(("file_write", "shell", "network", "mcp", "skills"), _POWER),
    **dict.fromkeys(("allow_tools", "only_tools", "deny_tools"), _some(_TOOL | _TEXT)),
    **dict.fromkeys(("allow_commands", "deny_commands"), _some(_COMMAND)),
    **dict.fromkeys(("allow_servers", "deny_servers"), _some(_TEXT)),
)


# A busy machine is no finding.
_unhurried = settings(suppress_health_check=[HealthCheck.too_slow])


def _rules(approval: Approval = "default", **said: Any) -> tuple[Rule, ...]:
    return our_rules(Permissions(**said), approval)


def _said(**fields: Any) -> str:
    """Arguments as the engine writes them for its expressions."""
    return (
        "{"
        + ",".join(f"\0{json.dumps(k)}:{json.dumps(v, ensure_ascii=False)}\0" for k, v in fields.items())
        + "}"
    )


def _finds(rule: Rule, **fields: Any) -> bool:
    assert rule.arguments is not None
    return re.search(rule.arguments, _said(**fields)) is not None


@_unhurried
@given(_PERMISSIONS, _APPROVAL)
def test_the_text_is_toml_that_says_the_same(permissions: Permissions, approval: Approval) -> None:
    """Whatever is in the names and commands, what is written is what is read."""
    rules = [rule.fields() for rule in our_rules(permissions, approval)]
    assert tomllib.loads(policy_text(rules)).get("rule", []) == rules


@_unhurried
@given(_PERMISSIONS, _APPROVAL)
def test_what_the_engine_demands_of_a_rule(permissions: Permissions, approval: Approval) -> None:
    """A tool, a decision, a priority from 0 to 999, modes that it knows; an expression that it does not drop."""
    assume(not list(too_long(permissions)))
    for rule in our_rules(permissions, approval):
        fields = rule.fields()
        assert fields["toolName"]
        assert fields["decision"] in ("allow", "deny")
        assert 0 <= fields["priority"] <= 999
        assert set(fields.get("modes", ())) <= {"default", "autoEdit", "yolo", "plan"}
        assert len(rule.arguments or "") <= 2048
        assert not _UNSAFE.search(rule.arguments or "")


@_unhurried
@given(_PERMISSIONS, _APPROVAL)
def test_our_denies_stand_above_the_user_and_our_allows_below(
    permissions: Permissions, approval: Approval
) -> None:
    """999 for a deny, and no more than 2 for the rest: the user's own have all between 3 and 997."""
    for rule in our_rules(permissions, approval):
        last = rule.tools == ("*",) and rule.server is None
        assert rule.priority == (1 if last else {"deny": 999, "allow": 2}[rule.decision])


@_unhurried
@given(_PERMISSIONS)
def test_plan_mode_gets_neither_files_nor_shells(permissions: Permissions) -> None:
    """No allow of ours for these, or for a tool that nobody knows, counts in plan mode."""
    for rule in our_rules(permissions, "plan"):
        if rule.decision == "allow" and "plan" in rule.modes and rule.server is None:
            assert not {"write_file", "replace", "run_shell_command", "new_tool"} & set(rule.tools)


@_unhurried
@given(_COMMAND, _COMMAND)
@example("git status", "x")
@example('echo "a(b)* [c]', "x\ty")
def test_an_allowed_command_is_found_where_it_is_run(command: str, more: str) -> None:
    """It is found at the beginning of the command, with arguments or without, and nowhere else."""
    rule = next(rule for rule in _rules(allow_commands=(command,)) if rule.arguments)
    command = command.strip()
    assert _finds(rule, command=command)
    assert _finds(rule, command=f"{command} {more}")
    assert not _finds(rule, command=f"touch x; {command}")
    assert not _finds(rule, command="touch x", description=command, zz={"command": command})
    assert not _finds(rule, a={"command": command}, command="touch x")
    assert not _finds(rule, command=f"{command}x")


@_unhurried
@given(_COMMAND, _COMMAND)
@example("git push", "x")
@example("rm -r", "f x")
def test_a_denied_command_is_found(command: str, more: str) -> None:
    """It is found with arguments, behind blanks and by its path, with tabs or broken lines between its words."""
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
        assert _finds(rule, command=run), run


@pytest.mark.parametrize(
    ("denied", "run", "found"),
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
def test_where_a_denied_command_ends(denied: str, run: str, found: bool) -> None:
    """A name is a whole name; an option may have others run into it."""
    [rule] = [rule for rule in _rules("yolo", deny_commands=(denied,)) if rule.arguments]
    assert _finds(rule, command=run) == found


def test_a_command_that_is_too_long_is_named() -> None:
    """The engine would drop its rule in silence."""
    assert not list(too_long(Permissions(deny_commands=("rm",), allow_commands=("git status",))))
    assert len(list(too_long(Permissions(deny_commands=("x" * 3000,), allow_commands=("a " * 200,))))) == 2


@pytest.mark.parametrize("approval", get_args(Approval))
def test_plan_mode_is_no_door_to_yolo(approval: Approval) -> None:
    """But for yolo itself, no run may enter or leave plan mode, with nothing said at all."""
    denied = {tool for rule in _rules(approval) if rule.decision == "deny" for tool in rule.tools}
    assert denied == (set() if approval == "yolo" else {"enter_plan_mode", "exit_plan_mode"})


def test_rules_for_servers() -> None:
    """A server is named by `mcpName` with `*` for its tools: anything else in `toolName` would be put behind it."""
    [rule] = _rules("yolo", allow_servers=("lab",))
    assert rule.fields() == {
        "toolName": "*",
        "mcpName": "lab",
        "decision": "allow",
        "priority": 2,
        "modes": ["default", "autoEdit", "yolo", "plan"],
    }


def test_only_tools_keep_what_their_mode_gives_them() -> None:
    """The named ones are approved where their mode approves them, all others are denied, old names of theirs not."""
    rules = _rules("yolo", only_tools=("grep_search", "write_file"))
    denied = {tool for rule in rules if rule.decision == "deny" and not rule.server for tool in rule.tools}
    assert {"read_file", "run_shell_command", "*"} <= denied
    assert not {"grep_search", "search_file_content", "write_file"} & denied
    [write] = [rule for rule in rules if rule.tools == ("write_file",)]
    assert (write.decision, write.modes) == ("allow", ("auto_edit", "yolo"))
    assert ("*", "deny", 999) in {(rule.server, rule.decision, rule.priority) for rule in rules}


@pytest.mark.parametrize(
    ("said", "redirects"),
    [
        ({"shell": "allow"}, True),
        ({"shell": "allow", "file_write": "deny"}, False),
        ({"shell": "allow", "file_write": "ask"}, False),
        ({"allow_tools": ("run_shell_command",)}, True),
        ({"allow_commands": ("ls",)}, False),
        ({"allow_commands": ("ls",), "file_write": "allow"}, True),
    ],
)
def test_who_may_redirect(said: dict[str, Any], redirects: bool) -> None:
    """An allowed shell may, unless files are denied; an allowed command may where files are allowed."""
    [rule] = [rule for rule in _rules(**said) if "run_shell_command" in rule.tools]
    assert rule.fields().get("allowRedirection", False) == redirects
