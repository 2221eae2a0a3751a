"""Tests of the policy rules of a warm process, which can ask for permission."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geminids.gemini.tools import tools_with
from geminids.launch.permissions.policy import policy_text
from geminids.launch.permissions.user_policies import UserPolicies
from geminids.launch.permissions.verdicts import Answer, Verdicts, session_mode, without_asks
from geminids.launch.permissions.warm_policy import agents_in, as_warm, warm_rules
from geminids.launch.settings.mcp_servers import untrusted_servers
from geminids.options import CAPABILITIES, Approval, Permissions
from geminids.options.permissions import Power

SHELL = "run_shell_command"
_REFUSED = re.compile(r"\([^)]*[*+?{].*\)[*+?{]")
_POWER = st.sampled_from([None, *get_args(Power)])
_APPROVAL = st.sampled_from(get_args(Approval))
_PERMISSIONS = st.builds(
    Permissions,
    **dict.fromkeys(CAPABILITIES, _POWER),
    only_tools=st.sampled_from([(), ("write_file",), (SHELL, "mcp_a_b")]),
    deny_tools=st.sampled_from([(), ("glob",)]),
    allow_commands=st.sampled_from([(), ("git status",)]),
)
_allow_slow = settings(suppress_health_check=[HealthCheck.too_slow])

Table = dict[str, Any]
_NONE = UserPolicies()


def _tables(
    approval: Approval = "default",
    *,
    asks: bool = True,
    user_policies: UserPolicies = _NONE,
    **permissions: Any,
) -> list[Table]:
    return warm_rules(Permissions(**permissions), approval, user_policies, asks=asks)


def _tool_names(table: Table) -> list[str]:
    return [table["toolName"]] if isinstance(table["toolName"], str) else table["toolName"]


def _first(tables: list[Table], tool: str, mode: str, arguments: str = "{}") -> Table | None:
    """The rule that the policy engine applies: the first that matches, by priority, then by
    position."""
    for table in sorted(tables, key=lambda table: -table["priority"]):
        server = table.get("mcpName")
        if ({tool, "*"} & set(_tool_names(table)) and (not server or tool.startswith("mcp_"))) and (
            mode in table.get("modes", [mode])
            and "subagent" not in table
            and re.search(table.get("argsPattern", ""), arguments)
        ):
            return table
    return None


@_allow_slow
@given(_PERMISSIONS, _APPROVAL, st.booleans())
def test_rules_are_valid_for_the_engine(permissions: Permissions, approval: Approval, asks: bool) -> None:
    """Any permissions give valid TOML with decisions, priorities and expressions that the engine
    accepts."""
    tables = warm_rules(permissions, approval, UserPolicies(), ("mine",), asks=asks)
    assert tomllib.loads(policy_text(tables))["rule"] == tables
    for table in tables:
        assert table["toolName"]
        assert table["decision"] in ("allow", "deny", "ask_user")
        assert 0 <= table["priority"] <= 999
        assert len(table.get("argsPattern", "")) <= 2048
        assert not _REFUSED.search(table.get("argsPattern", ""))


@_allow_slow
@given(_PERMISSIONS, _APPROVAL)
def test_ask_becomes_a_question(permissions: Permissions, approval: Approval) -> None:
    """The first rule for a tool with `ask` asks or denies.

    In plan mode files and shells are denied.
    """
    mode = session_mode(approval)
    tables = warm_rules(permissions, approval, UserPolicies(), asks=True)
    for capability in CAPABILITIES:
        if getattr(permissions, capability) != "ask":
            continue
        for tool in (*tools_with(capability), *(["mcp_a_b"] if capability == "mcp" else [])):
            rule = _first(tables, tool, mode)
            assert rule is not None
            denied = mode == "plan" and capability in ("file_write", "shell")
            assert rule["decision"] == "deny" or (rule["decision"] == "ask_user" and not denied)


@_allow_slow
@given(_PERMISSIONS, _APPROVAL)
def test_without_anyone_to_ask_an_ask_is_a_deny(permissions: Permissions, approval: Approval) -> None:
    """Without anyone to ask, `ask` becomes a deny, as in a headless run."""
    tables = warm_rules(permissions, approval, UserPolicies(), asks=False)
    for capability in CAPABILITIES:
        if getattr(permissions, capability) == "ask":
            for tool in tools_with(capability):
                rule = _first(tables, tool, session_mode(approval))
                assert rule and (rule["decision"], rule["priority"]) == ("deny", 999)


@pytest.mark.parametrize("approval", ["default", "auto_edit"])
@pytest.mark.parametrize("asks", [True, False])
def test_a_harmless_command_needs_permission(approval: Approval, asks: bool) -> None:
    """Even a harmless command needs permission: the rule has an `argsPattern`, so that the engine
    does not decide by itself."""
    rule = _first(_tables(approval, asks=asks), SHELL, "default")
    assert rule and (rule["decision"], rule["priority"]) == ("ask_user", 1) and rule["argsPattern"]
    allowed = _first(_tables(approval, asks=asks, shell="allow"), SHELL, "default")
    assert allowed and allowed["decision"] == "allow"


def test_auto_edit_consists_of_rules() -> None:
    """For auto_edit the session runs in `default` mode, and rules allow its three tools unless they
    need permission or are denied."""
    assert [session_mode(mode) for mode in get_args(Approval)] == ["default", "default", "yolo", "plan"]
    for tool in ("write_file", "replace", "web_fetch"):
        rule = _first(_tables("auto_edit"), tool, "default")
        assert rule and rule["decision"] == "allow"
        assert _first(_tables("default"), tool, "default") is None
    asked = _first(_tables("auto_edit", file_write="ask"), "write_file", "default")
    assert asked and asked["decision"] == "ask_user"
    denied = _first(_tables("auto_edit", asks=False, network="deny"), "web_fetch", "default")
    assert denied and denied["decision"] == "deny"


@pytest.mark.parametrize(
    ("approval", "permissions", "redirects"),
    [
        ("default", {"shell": "allow"}, True),
        ("default", {"shell": "allow", "file_write": "ask"}, False),
        ("auto_edit", {"shell": "allow", "file_write": "deny"}, True),
        ("auto_edit", {"shell": "allow", "file_write": "ask"}, False),
        ("auto_edit", {"allow_commands": ("ls",)}, True),
    ],
)
def test_rules_that_allow_redirection(
    approval: Approval, permissions: dict[str, Any], redirects: bool
) -> None:
    """An allowed shell may not redirect if file writes need permission.

    In auto_edit mode a denied file write does not prevent it.
    """
    [rule] = [
        t for t in _tables(approval, **permissions) if SHELL in _tool_names(t) and t["decision"] == "allow"
    ]
    assert rule.get("allowRedirection", False) == redirects


def test_a_built_in_skill_that_needs_permission_is_denied() -> None:
    """A built-in skill is denied if it needs permission, because the CLI never asks about one.

    The user's own skills can be asked for.
    """
    built_in, own_skill = '{\0"name":"skill-creator"\0}', '{\0"name":"star-chart"\0}'
    for approval, permissions in (("default", {}), ("yolo", {"skills": "ask"})):
        tables = _tables(approval, **permissions)  # type: ignore[arg-type]
        rule = _first(tables, "activate_skill", approval, built_in)
        assert rule and rule["decision"] == "deny"
        other = _first(tables, "activate_skill", approval, own_skill)
        assert other is None or other["decision"] == "ask_user"
    allowed = _first(_tables(skills="allow"), "activate_skill", "default", built_in)
    assert allowed and allowed["decision"] == "allow"


def test_subagents_that_could_ask_are_denied() -> None:
    """Subagents that could ask for permission are denied by name.

    In yolo mode, if nothing asks, they stay, but may not write build files.
    """
    denied = {
        name for t in _tables() if t["decision"] == "deny" and t["priority"] == 999 for name in _tool_names(t)
    }
    assert "generalist" in denied and not {"codebase_investigator", "cli_help"} & denied
    free = warm_rules(Permissions(), "yolo", UserPolicies(), ("mine",), asks=True)
    inner = [table for table in free if "subagent" in table]
    assert {table["subagent"] for table in inner} == {"generalist", "mine"}
    assert all(table["decision"] == "deny" and "pyproject" in table["argsPattern"] for table in inner)
    asking = warm_rules(Permissions(shell="ask"), "yolo", UserPolicies(), ("mine",), asks=True)
    assert ["generalist", "mine"] in [table["toolName"] for table in asking]
    user_policies = UserPolicies(rules=(_rule("glob", "ask_user"),))
    assert "generalist" in [table["toolName"] for table in _tables("yolo", user_policies=user_policies)]


@_allow_slow
@given(_PERMISSIONS, st.booleans())
def test_a_session_can_change_its_mode(permissions: Permissions, asks: bool) -> None:
    """The rules are the same for default, yolo and plan, and the tools that enter and leave plan
    mode are denied in all of them."""
    rules_by_mode = [
        warm_rules(permissions, approval, UserPolicies(), asks=asks)
        for approval in get_args(Approval)
        if approval != "auto_edit"
    ]
    assert rules_by_mode[0] == rules_by_mode[1] == rules_by_mode[2]
    for tool in ("enter_plan_mode", "exit_plan_mode"):
        for mode in ("default", "yolo", "plan"):
            rule = _first(rules_by_mode[0], tool, mode)
            assert rule and rule["decision"] == "deny"


def test_the_users_subagents_are_found(tmp_path: Path) -> None:
    """The user's subagents are found by the name inside the file, not by the file name."""
    (tmp_path / "a.md").write_text("---\nname: star-gazer\ndescription: x\n---\n")
    (tmp_path / "b.md").write_text("---\ndescription: x\nname: 'second'\n---\n")
    (tmp_path / "c.md").write_text("no name")
    (tmp_path / "d.txt").write_text("name: third")
    assert agents_in([tmp_path, tmp_path / "nowhere"]) == ("star-gazer", "second")


def _rule(tool: str, decision: str, priority: int = 500, **more: Any) -> Table:
    return {"toolName": tool, "decision": decision, "priority": priority, **more}


def test_the_users_allows_become_questions() -> None:
    """For tools that need permission, the user's denies come first and the user's allows become
    questions, in their order. Rules for other tools are not moved."""
    user_policies = UserPolicies(
        rules=(
            _rule(SHELL, "allow", 900, commandPrefix="git", allowRedirection=True),
            _rule("*", "deny", 800, argsPattern="secret"),
            _rule(SHELL, "allow", 700),
            _rule("read_file", "allow", 600),
        ),
        excluded=("replace", "run_shell_command(rm)", "glob"),
    )
    repeated = [
        t
        for t in _tables("yolo", user_policies=user_policies, shell="ask", file_write="ask")
        if t["priority"] == 998
    ]
    assert [(t["toolName"], t["decision"]) for t in repeated[:2]] == [("replace", "deny"), (SHELL, "deny")]
    moved = [t for t in repeated[2:] if isinstance(t["toolName"], str)]
    assert moved[0] == _rule(SHELL, "ask_user", 998, commandPrefix="git")
    secret = [t["toolName"] for t in repeated if t.get("argsPattern") == "secret"]
    assert {"write_file", "replace", SHELL} <= set(secret)
    assert not {"read_file", "*", "web_fetch", "glob"} & {name for t in repeated for name in _tool_names(t)}
    assert all(t.get("argsPattern") or t.get("commandPrefix") for t in moved if t["decision"] == "ask_user")
    assert [t for t in _tables("yolo", user_policies=user_policies) if t["priority"] == 998] == []


def test_the_users_rules_for_servers() -> None:
    """The user's rules for MCP servers come before our question about servers, and are not moved if
    servers need no permission."""
    user_policies = UserPolicies(
        rules=(_rule("*", "deny", mcpName="lab"), _rule("mcp_a_*", "allow"), _rule("*", "allow"))
    )
    repeated = [t for t in _tables(user_policies=user_policies, mcp="ask") if t["priority"] == 998]
    assert repeated[0] == _rule("*", "deny", 998, mcpName="lab")
    assert repeated[1] == _rule("mcp_a_*", "ask_user", 998)
    assert _rule("*", "ask_user", 998, mcpName="*") in repeated
    assert not any(
        "mcpName" in t for t in _tables(user_policies=user_policies, shell="ask") if t["priority"] == 998
    )


def test_interactive_rules_are_left_out() -> None:
    """Rules for non-interactive runs apply, and rules for interactive ones do not.

    A file that needs no change is passed by its path.
    """
    plain = UserPolicies(paths=("a.toml",), rules=(_rule("glob", "deny"), _rule("replace", "ask_user")))
    assert as_warm(plain, "default").paths == ("a.toml",)
    assert as_warm(plain, "default").denied == ("glob",)  # no questions in a headless run
    odd = UserPolicies(
        paths=("a.toml",),
        rules=(
            _rule("a", "deny", interactive=False),
            _rule("b", "allow", interactive=True),
            _rule("c", "deny", modes=["autoEdit"]),
            _rule("d", "deny", modes=["default"]),
        ),
    )
    warm = as_warm(odd, "auto_edit")
    assert warm.paths == () and warm.text is not None
    assert tomllib.loads(warm.text)["rule"] == [
        _rule("a", "deny"),
        _rule("c", "deny", modes=["default", "autoEdit"]),
    ]


def test_no_server_is_trusted() -> None:
    """`trust` of the user's servers is set to false, because the CLI never asks for tools of a
    trusted server."""
    assert untrusted_servers({"mcpServers": {"lab": {"trust": True}, "odd": 3}}) == {
        "mcpServers": {"lab": {"trust": False}}
    }
    assert untrusted_servers({}) == {}


@pytest.mark.parametrize(
    ("permissions", "tool", "command", "answer"),
    [
        ({"shell": "ask"}, SHELL, "ls", None),
        ({"shell": "ask", "allow_commands": ("ls",)}, SHELL, "ls -l", (True, "'ls' is in `allow_commands`")),
        ({"shell": "ask", "allow_commands": ("ls",)}, SHELL, "ls; rm x", None),
        (
            {"shell": "ask", "deny_commands": ("rm",)},
            SHELL,
            "ls; rm x",
            (False, "'rm' is in `deny_commands`"),
        ),
        ({"deny_commands": ("rm",)}, SHELL, "rm x", (False, "'rm' is in `deny_commands`")),
        ({"deny_commands": ("rm",)}, SHELL, "alarm", None),
        (
            {"allow_commands": ("ls",)},
            SHELL,
            "ls",
            None,
        ),  # the CLI itself allows it; a request comes only from its own safety check
        ({"shell": "allow"}, SHELL, "ls", None),
        ({"file_write": "ask"}, "write_file", None, None),
        (
            {"file_write": "ask", "allow_tools": ("write_file",)},
            "write_file",
            None,
            (True, "write_file is in `allow_tools`"),
        ),
        ({"file_write": "allow", "allow_tools": ("write_file",)}, "write_file", None, None),
        (
            {"mcp": "ask", "allow_servers": ("lab",)},
            "mcp_lab_a",
            None,
            (True, "the MCP server lab is in `allow_servers`"),
        ),
        ({"mcp": "ask", "allow_servers": ("lab",)}, "mcp_other_a", None, None),
        (
            {"mcp": "ask", "deny_servers": ("lab",)},
            "mcp_lab_a",
            None,
            (False, "the MCP server lab is in `deny_servers`"),
        ),
        ({"deny_tools": ("glob",)}, "glob", None, (False, "glob is in `deny_tools`")),
        ({"only_tools": ("glob",)}, "write_file", None, (False, "write_file is not in `only_tools`")),
        ({"network": "deny"}, "web_fetch", None, (False, "network is denied by the permissions of this run")),
        (
            {},
            "exit_plan_mode",
            None,
            (False, "exit_plan_mode would change the approval mode from default to yolo"),
        ),
        ({}, "a_tool_of_a_later_release", None, None),
    ],
)
def test_rules_answer_requests(
    permissions: dict[str, Any], tool: str, command: str | None, answer: tuple[bool, str] | None
) -> None:
    """A rule allows or denies a call and names itself as the reason; None means that the user must
    be asked."""
    verdicts = Verdicts("default", Permissions(**permissions), ("lab",), warm=True, asks=True)
    assert verdicts.answer(tool, command) == (Answer(*answer) if answer else None)


def test_no_rule_allows_a_build_file() -> None:
    """No rule allows a write to a build file: the user must be asked."""
    verdicts = Verdicts(
        "yolo", Permissions(file_write="ask", allow_tools=("write_file",)), warm=True, asks=True
    )
    assert verdicts.answer("write_file", None, ("a/pyproject.toml",)) is None
    assert verdicts.answer("write_file", None, ("a/notes.txt",)) is not None


def test_plan_mode_denies_shells_without_asking() -> None:
    """In plan mode a shell is denied without asking, because nobody could allow it.

    A web page may be asked for.
    """
    verdicts = Verdicts("plan", Permissions(shell="ask", network="ask"), warm=True, asks=True)
    assert verdicts.answer(SHELL, "ls") == Answer(False, f"`approval='plan'` does not allow {SHELL}")
    assert verdicts.answer("web_fetch") is None


def test_the_reason_in_a_warm_process() -> None:
    """The reason in a warm process says that there is no user to ask and does not mention a headless
    run. If the user can be asked, `ask` is no deny."""
    nobody = Verdicts("yolo", Permissions(shell="ask"), warm=True)
    assert nobody.why_not(SHELL, {}) == "shell needs permission, but there is no user to ask"
    assert Verdicts("yolo", Permissions(shell="ask"), warm=True, asks=True).why_not(SHELL, {}) is None
    assert "headless" not in str(Verdicts("yolo", Permissions(), warm=True).why_not("ask_user", {}))
    agent = Verdicts("default", Permissions(), warm=True).why_not(
        "invoke_agent", {"agent_name": "generalist"}
    )
    assert agent == "the subagent generalist cannot ask for permission in a warm process; use a headless run"
    calls: tuple[dict[str, Any], ...] = ({"agent_name": "cli_help"}, {"agent_name": 3}, {})
    assert [
        Verdicts("default", Permissions(), warm=True).why_not("invoke_agent", call) for call in calls
    ] == [None] * 3
    assert (
        Verdicts("yolo", Permissions(), warm=True).why_not("invoke_agent", {"agent_name": "generalist"})
        is None
    )


def test_without_asks() -> None:
    """`without_asks` removes every `ask` and keeps the other permissions."""
    assert without_asks(Permissions(shell="ask", mcp="deny")) == Permissions(mcp="deny")
    permissions = Permissions(mcp="deny", allow_tools=("glob",))
    assert without_asks(permissions) is permissions
