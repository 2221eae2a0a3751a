"""The rules of a warm process."""

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
_UNSAFE = re.compile(r"\([^)]*[*+?{].*\)[*+?{]")
_POWER = st.sampled_from([None, *get_args(Power)])
_APPROVAL = st.sampled_from(get_args(Approval))
_PERMISSIONS = st.builds(
    Permissions,
    **dict.fromkeys(CAPABILITIES, _POWER),
    only_tools=st.sampled_from([(), ("write_file",), (SHELL, "mcp_a_b")]),
    deny_tools=st.sampled_from([(), ("glob",)]),
    allow_commands=st.sampled_from([(), ("git status",)]),
)
_unhurried = settings(suppress_health_check=[HealthCheck.too_slow])

Table = dict[str, Any]
_NONE = UserPolicies()


def _tables(
    approval: Approval = "default", *, asks: bool = True, theirs: UserPolicies = _NONE, **said: Any
) -> list[Table]:
    return warm_rules(Permissions(**said), approval, theirs, asks=asks)


def _named(table: Table) -> list[str]:
    return [table["toolName"]] if isinstance(table["toolName"], str) else table["toolName"]


def _first(tables: list[Table], tool: str, mode: str, arguments: str = "{}") -> Table | None:
    """The rule that the engine takes: the first that fits, by priority, then by place."""
    for table in sorted(tables, key=lambda table: -table["priority"]):
        server = table.get("mcpName")
        if ({tool, "*"} & set(_named(table)) and (not server or tool.startswith("mcp_"))) and (
            mode in table.get("modes", [mode])
            and "subagent" not in table
            and re.search(table.get("argsPattern", ""), arguments)
        ):
            return table
    return None


@_unhurried
@given(_PERMISSIONS, _APPROVAL, st.booleans())
def test_what_the_engine_demands(permissions: Permissions, approval: Approval, asks: bool) -> None:
    """Valid TOML, decisions and priorities that it knows, expressions that it keeps."""
    tables = warm_rules(permissions, approval, UserPolicies(), ("mine",), asks=asks)
    assert tomllib.loads(policy_text(tables))["rule"] == tables
    for table in tables:
        assert table["toolName"]
        assert table["decision"] in ("allow", "deny", "ask_user")
        assert 0 <= table["priority"] <= 999
        assert len(table.get("argsPattern", "")) <= 2048
        assert not _UNSAFE.search(table.get("argsPattern", ""))


@_unhurried
@given(_PERMISSIONS, _APPROVAL)
def test_an_ask_is_a_question_in_every_mode_that_can_have_it(
    permissions: Permissions, approval: Approval
) -> None:
    """The first rule for its tools asks, or denies; in plan mode files and shells are denied."""
    mode = session_mode(approval)
    tables = warm_rules(permissions, approval, UserPolicies(), asks=True)
    for capability in CAPABILITIES:
        if getattr(permissions, capability) != "ask":
            continue
        for tool in (*tools_with(capability), *(["mcp_a_b"] if capability == "mcp" else [])):
            found = _first(tables, tool, mode)
            assert found is not None
            denied = mode == "plan" and capability in ("file_write", "shell")
            assert found["decision"] == "deny" or (found["decision"] == "ask_user" and not denied)


@_unhurried
@given(_PERMISSIONS, _APPROVAL)
def test_without_anybody_to_ask_an_ask_is_a_deny(permissions: Permissions, approval: Approval) -> None:
    """As on the other lane."""
    tables = warm_rules(permissions, approval, UserPolicies(), asks=False)
    for capability in CAPABILITIES:
        if getattr(permissions, capability) == "ask":
            for tool in tools_with(capability):
                found = _first(tables, tool, session_mode(approval))
                assert found and (found["decision"], found["priority"]) == ("deny", 999)


@pytest.mark.parametrize("approval", ["default", "auto_edit"])
@pytest.mark.parametrize("asks", [True, False])
def test_a_harmless_command_is_asked_for(approval: Approval, asks: bool) -> None:
    """The rule looks at the arguments, so that the engine does not decide by itself."""
    found = _first(_tables(approval, asks=asks), SHELL, "default")
    assert found and (found["decision"], found["priority"]) == ("ask_user", 1) and found["argsPattern"]
    allowed = _first(_tables(approval, asks=asks, shell="allow"), SHELL, "default")
    assert allowed and allowed["decision"] == "allow"


def test_auto_edit_is_made_of_rules() -> None:
    """Its session is in `default`: the three tools of auto_edit are allowed there, but for what is asked or denied."""
    assert [session_mode(mode) for mode in get_args(Approval)] == ["default", "default", "yolo", "plan"]
    for tool in ("write_file", "replace", "web_fetch"):
        found = _first(_tables("auto_edit"), tool, "default")
        assert found and found["decision"] == "allow"
        assert _first(_tables("default"), tool, "default") is None
    asked = _first(_tables("auto_edit", file_write="ask"), "write_file", "default")
    assert asked and asked["decision"] == "ask_user"
    denied = _first(_tables("auto_edit", asks=False, network="deny"), "web_fetch", "default")
    assert denied and denied["decision"] == "deny"


@pytest.mark.parametrize(
    ("approval", "said", "redirects"),
    [
        ("default", {"shell": "allow"}, True),
        ("default", {"shell": "allow", "file_write": "ask"}, False),
        ("auto_edit", {"shell": "allow", "file_write": "deny"}, True),
        ("auto_edit", {"shell": "allow", "file_write": "ask"}, False),
        ("auto_edit", {"allow_commands": ("ls",)}, True),
    ],
)
def test_a_redirection_is_a_write(approval: Approval, said: dict[str, Any], redirects: bool) -> None:
    """An allowed shell may not write unasked where files must be asked for; auto_edit never looks at it."""
    [rule] = [t for t in _tables(approval, **said) if SHELL in _named(t) and t["decision"] == "allow"]
    assert rule.get("allowRedirection", False) == redirects


def test_a_built_in_skill_is_denied_where_it_would_not_be_asked_for() -> None:
    """The CLI never asks about one; a skill of the user's is asked for."""
    built_in, users = '{\0"name":"skill-creator"\0}', '{\0"name":"star-chart"\0}'
    for approval, said in (("default", {}), ("yolo", {"skills": "ask"})):
        tables = _tables(approval, **said)  # type: ignore[arg-type]
        found = _first(tables, "activate_skill", approval, built_in)
        assert found and found["decision"] == "deny"
        other = _first(tables, "activate_skill", approval, users)
        assert other is None or other["decision"] == "ask_user"
    allowed = _first(_tables(skills="allow"), "activate_skill", "default", built_in)
    assert allowed and allowed["decision"] == "allow"


def test_subagents_that_could_ask() -> None:
    """They are denied by name; in yolo with nothing to ask they stay, and build files are denied to them."""
    denied = {
        name for t in _tables() if t["decision"] == "deny" and t["priority"] == 999 for name in _named(t)
    }
    assert "generalist" in denied and not {"codebase_investigator", "cli_help"} & denied
    free = warm_rules(Permissions(), "yolo", UserPolicies(), ("mine",), asks=True)
    inner = [table for table in free if "subagent" in table]
    assert {table["subagent"] for table in inner} == {"generalist", "mine"}
    assert all(table["decision"] == "deny" and "pyproject" in table["argsPattern"] for table in inner)
    asking = warm_rules(Permissions(shell="ask"), "yolo", UserPolicies(), ("mine",), asks=True)
    assert ["generalist", "mine"] in [table["toolName"] for table in asking]
    theirs = UserPolicies(rules=(_rule("glob", "ask_user"),))
    assert "generalist" in [table["toolName"] for table in _tables("yolo", theirs=theirs)]


@_unhurried
@given(_PERMISSIONS, st.booleans())
def test_a_session_can_change_its_mode(permissions: Permissions, asks: bool) -> None:
    """One and the same rules serve default, yolo and plan; plan mode is no door from any of them."""
    made = [
        warm_rules(permissions, approval, UserPolicies(), asks=asks)
        for approval in get_args(Approval)
        if approval != "auto_edit"
    ]
    assert made[0] == made[1] == made[2]
    for tool in ("enter_plan_mode", "exit_plan_mode"):
        for mode in ("default", "yolo", "plan"):
            found = _first(made[0], tool, mode)
            assert found and found["decision"] == "deny"


def test_the_users_subagents_are_found(tmp_path: Path) -> None:
    """By the name in the file, which is not that of the file."""
    (tmp_path / "a.md").write_text("---\nname: star-gazer\ndescription: x\n---\n")
    (tmp_path / "b.md").write_text("---\ndescription: x\nname: 'second'\n---\n")
    (tmp_path / "c.md").write_text("no name")
    (tmp_path / "d.txt").write_text("name: third")
    assert agents_in([tmp_path, tmp_path / "nowhere"]) == ("star-gazer", "second")


def _rule(tool: str, decision: str, priority: int = 500, **more: Any) -> Table:
    return {"toolName": tool, "decision": decision, "priority": priority, **more}


def test_the_users_denies_come_before_the_question_and_their_allows_are_questions() -> None:
    """In the order of the user's; no rule of theirs for other tools is moved."""
    theirs = UserPolicies(
        rules=(
            _rule(SHELL, "allow", 900, commandPrefix="git", allowRedirection=True),
            _rule("*", "deny", 800, argsPattern="secret"),
            _rule(SHELL, "allow", 700),
            _rule("read_file", "allow", 600),
        ),
        excluded=("replace", "run_shell_command(rm)", "glob"),
    )
    again = [t for t in _tables("yolo", theirs=theirs, shell="ask", file_write="ask") if t["priority"] == 998]
    assert [(t["toolName"], t["decision"]) for t in again[:2]] == [("replace", "deny"), (SHELL, "deny")]
    moved = [t for t in again[2:] if isinstance(t["toolName"], str)]
    assert moved[0] == _rule(SHELL, "ask_user", 998, commandPrefix="git")
    secret = [t["toolName"] for t in again if t.get("argsPattern") == "secret"]
    assert {"write_file", "replace", SHELL} <= set(secret)
    assert not {"read_file", "*", "web_fetch", "glob"} & {name for t in again for name in _named(t)}
    assert all(t.get("argsPattern") or t.get("commandPrefix") for t in moved if t["decision"] == "ask_user")
    assert [t for t in _tables("yolo", theirs=theirs) if t["priority"] == 998] == []


def test_the_users_rules_for_servers() -> None:
    """They stand before the question about servers, and nowhere where servers are not asked for."""
    theirs = UserPolicies(
        rules=(_rule("*", "deny", mcpName="lab"), _rule("mcp_a_*", "allow"), _rule("*", "allow"))
    )
    again = [t for t in _tables(theirs=theirs, mcp="ask") if t["priority"] == 998]
    assert again[0] == _rule("*", "deny", 998, mcpName="lab")
    assert again[1] == _rule("mcp_a_*", "ask_user", 998)
    assert _rule("*", "ask_user", 998, mcpName="*") in again
    assert not any("mcpName" in t for t in _tables(theirs=theirs, shell="ask") if t["priority"] == 998)


def test_the_users_policies_as_a_headless_run_has_them() -> None:
    """What is for headless runs holds, an allow for a terminal does not; a file that is fit stays where it is."""
    plain = UserPolicies(paths=("a.toml",), rules=(_rule("glob", "deny"), _rule("replace", "ask_user")))
    assert as_warm(plain, "default").paths == ("a.toml",)
    assert as_warm(plain, "default").denied == ("glob",)  # a question is none on this lane
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


def test_trust_in_servers_is_taken_away() -> None:
    """A trusted server's tools are never asked for."""
    assert untrusted_servers({"mcpServers": {"lab": {"trust": True}, "odd": 3}}) == {
        "mcpServers": {"lab": {"trust": False}}
    }
    assert untrusted_servers({}) == {}


@pytest.mark.parametrize(
    ("said", "tool", "command", "answer"),
    [
        ({"shell": "ask"}, SHELL, "ls", None),
        ({"shell": "ask", "allow_commands": ("ls",)}, SHELL, "ls -l", (True, "'ls' is in allow_commands")),
        ({"shell": "ask", "allow_commands": ("ls",)}, SHELL, "ls; rm x", None),
        ({"shell": "ask", "deny_commands": ("rm",)}, SHELL, "ls; rm x", (False, "'rm' is in deny_commands")),
        ({"deny_commands": ("rm",)}, SHELL, "rm x", (False, "'rm' is in deny_commands")),
        ({"deny_commands": ("rm",)}, SHELL, "alarm", None),
        (
            {"allow_commands": ("ls",)},
            SHELL,
            "ls",
            None,
        ),  # allowed by the CLI: asked for by its own protection
        ({"shell": "allow"}, SHELL, "ls", None),
        ({"file_write": "ask"}, "write_file", None, None),
        (
            {"file_write": "ask", "allow_tools": ("write_file",)},
            "write_file",
            None,
            (True, "write_file is in allow_tools"),
        ),
        ({"file_write": "allow", "allow_tools": ("write_file",)}, "write_file", None, None),
        (
            {"mcp": "ask", "allow_servers": ("lab",)},
            "mcp_lab_a",
            None,
            (True, "the MCP server lab is in allow_servers"),
        ),
        ({"mcp": "ask", "allow_servers": ("lab",)}, "mcp_other_a", None, None),
        (
            {"mcp": "ask", "deny_servers": ("lab",)},
            "mcp_lab_a",
            None,
            (False, "the MCP server lab is in deny_servers"),
        ),
        ({"deny_tools": ("glob",)}, "glob", None, (False, "glob is in deny_tools")),
        ({"only_tools": ("glob",)}, "write_file", None, (False, "write_file is not in only_tools")),
        ({"network": "deny"}, "web_fetch", None, (False, "network is denied by the permissions of this run")),
        ({}, "exit_plan_mode", None, (False, "exit_plan_mode would change approval=default to yolo")),
        ({}, "a_tool_of_a_later_release", None, None),
    ],
)
def test_what_the_rules_answer(
    said: dict[str, Any], tool: str, command: str | None, answer: tuple[bool, str] | None
) -> None:
    """Yes and no with the rule that says it, or nothing: then somebody must be asked."""
    verdicts = Verdicts("default", Permissions(**said), ("lab",), warm=True, asks=True)
    assert verdicts.answer(tool, command) == (Answer(*answer) if answer else None)


def test_a_build_file_is_never_answered_by_a_rule() -> None:
    """The CLI wants a person for it, and a person it gets."""
    verdicts = Verdicts(
        "yolo", Permissions(file_write="ask", allow_tools=("write_file",)), warm=True, asks=True
    )
    assert verdicts.answer("write_file", None, ("a/pyproject.toml",)) is None
    assert verdicts.answer("write_file", None, ("a/notes.txt",)) is not None


def test_plan_mode_answers_for_files_and_shells() -> None:
    """Whoever is asked could not allow them either; a page may be asked for."""
    verdicts = Verdicts("plan", Permissions(shell="ask", network="ask"), warm=True, asks=True)
    assert verdicts.answer(SHELL, "ls") == Answer(False, f"approval=plan does not allow {SHELL}")
    assert verdicts.answer("web_fetch") is None


def test_the_reason_on_the_warm_lane() -> None:
    """It speaks of nobody to ask, and not of a headless run; where somebody can be asked, ask is no deny."""
    nobody = Verdicts("yolo", Permissions(shell="ask"), warm=True)
    assert nobody.why_not(SHELL, {}) == "shell needs permission, and there is nobody to ask"
    assert Verdicts("yolo", Permissions(shell="ask"), warm=True, asks=True).why_not(SHELL, {}) is None
    assert "headless" not in str(Verdicts("yolo", Permissions(), warm=True).why_not("ask_user", {}))
    agent = Verdicts("default", Permissions(), warm=True).why_not(
        "invoke_agent", {"agent_name": "generalist"}
    )
    assert agent == "generalist cannot ask for permission in a warm process; use a headless run"
    calls: tuple[dict[str, Any], ...] = ({"agent_name": "cli_help"}, {"agent_name": 3}, {})
    assert [
        Verdicts("default", Permissions(), warm=True).why_not("invoke_agent", call) for call in calls
    ] == [None] * 3
    assert (
        Verdicts("yolo", Permissions(), warm=True).why_not("invoke_agent", {"agent_name": "generalist"})
        is None
    )


def test_permissions_without_their_questions() -> None:
    """All else stays."""
    assert without_asks(Permissions(shell="ask", mcp="deny")) == Permissions(mcp="deny")
    said = Permissions(mcp="deny", allow_tools=("glob",))
    assert without_asks(said) is said
