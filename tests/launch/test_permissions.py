"""Why a call was refused, and which permissions contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.config.fields import fields
from geminids.gemini.tools import BUILT_IN, built_in
from geminids.launch.permissions.verdicts import (
    Verdicts,
    contradictions,
    denied_tools,
    fits,
    misspelled_tools,
    modes_of,
)
from geminids.options import Approval, Permissions
from permission_table import TABLE

SHELL = "run_shell_command"


@pytest.mark.parametrize(
    ("approval", "said", "tool", "why"),
    [
        ("default", {}, "read_file", None),
        ("default", {}, "google_web_search", None),
        (
            "default",
            {},
            "write_file",
            "approval=default does not allow write_file; allow file_write, or use another approval mode",
        ),
        ("auto_edit", {}, "write_file", None),
        (
            "auto_edit",
            {},
            "save_memory",
            "approval=auto_edit does not allow save_memory; add save_memory to allow_tools, "
            "or use another approval mode",
        ),
        ("yolo", {}, SHELL, None),
        ("plan", {}, "write_file", "approval=plan does not allow write_file"),
        ("plan", {"file_write": "allow"}, "write_file", "approval=plan does not allow write_file"),
        ("plan", {"allow_tools": (SHELL,)}, SHELL, f"approval=plan does not allow {SHELL}"),
        ("plan", {"network": "allow"}, "web_fetch", None),
        ("plan", {"allow_tools": ("web_fetch",)}, "web_fetch", None),
        ("default", {"file_write": "allow"}, "write_file", None),
        ("yolo", {"file_write": "deny"}, "replace", "file_write is denied by the permissions of this run"),
        (
            "yolo",
            {"shell": "ask"},
            SHELL,
            "shell needs permission, and a headless run cannot ask",
        ),
        ("yolo", {"deny_tools": ("glob",)}, "glob", "glob is in deny_tools"),
        ("yolo", {"deny_tools": ("search_file_content",)}, "grep_search", "grep_search is in deny_tools"),
        ("yolo", {"only_tools": ("glob",)}, "read_file", "read_file is not in only_tools"),
        ("yolo", {"only_tools": ("grep_search",)}, "search_file_content", None),
        ("yolo", {"mcp": "deny"}, "mcp_lab_mark", "mcp is denied by the permissions of this run"),
        ("yolo", {"deny_servers": ("lab",)}, "mcp_lab_mark", "the MCP server lab is in deny_servers"),
        ("default", {"allow_servers": ("lab",)}, "mcp_lab_mark", None),
        (
            "default",
            {},
            "mcp_lab_mark",
            "approval=default does not allow mcp_lab_mark; allow mcp, or use another approval mode",
        ),
        ("default", {}, "no_such_tool", None),
        ("yolo", {}, "ask_user", "ask_user needs a person, and a headless run has none"),
        ("default", {}, "exit_plan_mode", "exit_plan_mode would change approval=default to yolo"),
        ("yolo", {}, "exit_plan_mode", None),
    ],
)
def test_the_reason(approval: Approval, said: dict[str, Any], tool: str, why: str | None) -> None:
    """It names the permission or the mode, or is none where neither forbids the call."""
    assert Verdicts(approval, Permissions(**said), ("lab",)).why_not(tool, {}) == why


_PART = "a part of the command is not in allow_commands"
_REDIRECTS = "the command redirects, and file_write is not allowed"


@pytest.mark.parametrize(
    ("approval", "said", "command", "why"),
    [
        ("default", {"allow_commands": ("git status",)}, "git status && rm x", _PART),
        ("default", {"allow_commands": ("git status ",)}, "git status > x", _REDIRECTS),
        ("default", {"allow_commands": ("git status",)}, "ls > x", _PART),
        ("auto_edit", {"allow_commands": ("git status",)}, "ls", _PART),
        ("plan", {"allow_commands": ("ls",)}, "ls", f"approval=plan does not allow {SHELL}"),
        ("yolo", {"allow_commands": ("ls",)}, "rm x", None),
        ("yolo", {"deny_commands": ("rm ",)}, "ls; rm x", "'rm ' is in deny_commands"),
        ("default", {"shell": "allow", "deny_commands": ("rm",)}, "rm x", "'rm' is in deny_commands"),
        ("default", {"shell": "allow", "file_write": "deny"}, "ls > x", _REDIRECTS),
        ("default", {"shell": "allow"}, "ls > x", None),
        ("default", {"shell": "allow", "allow_commands": ("ls",)}, "rm x", None),
    ],
)
def test_the_reason_for_a_command(approval: Approval, said: dict[str, Any], command: str, why: str) -> None:
    """A command that was refused is told from one that redirects, and from a shell that is out altogether."""
    assert Verdicts(approval, Permissions(**said)).why_not(SHELL, {"command": command}) == why


def test_the_users_own_deny_is_named() -> None:
    """Where neither mode nor permissions forbid a call, the user's own policies may."""
    verdicts = Verdicts("yolo", Permissions(file_write="allow"), users=("write_file", "mcp_lab_*"))
    own = "is denied by the user's own policies or settings"
    assert verdicts.why_not("write_file", {}) == f"write_file {own}"
    assert verdicts.why_not("mcp_lab_mark", {}) == f"mcp_lab_mark {own}"
    assert verdicts.why_not("replace", {}) is None


@given(
    st.sampled_from(get_args(Approval)),
    st.sampled_from([tool.name for tool in BUILT_IN] + ["mcp_a_b", "x"]),
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8), max_size=3),
    st.sampled_from([{}, {"shell": "deny"}, {"allow_commands": ("ls",)}, {"only_tools": ("x",)}]),
)
def test_no_call_raises(
    approval: Approval, tool: str, arguments: dict[str, Any], said: dict[str, Any]
) -> None:
    """The arguments are the model's: whatever they hold, there is a reason or none."""
    why = Verdicts(approval, Permissions(**said)).why_not(tool, {"command": 3, **arguments})
    assert why is None or why.strip()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"shell": "allow", "deny_tools": ("glob",), "allow_tools": ("read_file",)}, []),
        (
            {"allow_tools": ("glob",), "deny_tools": ("glob",)},
            ["glob is both in allow_tools and in deny_tools"],
        ),
        (
            {"allow_tools": ("replace",), "file_write": "ask"},
            ["replace is in allow_tools, but file_write is ask"],
        ),
        (
            {"allow_tools": ("glob",), "only_tools": ("ls",)},
            ["glob is in allow_tools, but not in only_tools"],
        ),
        ({"allow_tools": ("mcp_a_b",), "mcp": "deny"}, ["mcp_a_b is in allow_tools, but mcp is deny"]),
        (
            {"allow_tools": ("mcp_a_b",), "deny_servers": ("a",)},
            ["mcp_a_b is in allow_tools, but its server a is in deny_servers"],
        ),
        (
            {"only_tools": ("glob",), "deny_tools": ("glob",)},
            ["glob is both in only_tools and in deny_tools"],
        ),
        (
            {"allow_commands": ("ls",), "shell": "deny"},
            ["allow_commands names shell commands, but shell is deny"],
        ),
        (
            {"allow_commands": ("ls",), "deny_tools": (SHELL,)},
            [f"allow_commands names shell commands, but {SHELL} is in deny_tools"],
        ),
        (
            {"allow_commands": ("ls",), "only_tools": ("glob",)},
            [f"allow_commands names shell commands, but {SHELL} is not in only_tools"],
        ),
        (
            {"allow_commands": ("ls", "rm"), "deny_commands": ("ls",)},
            ["'ls' is both in allow_commands and in"],
        ),
        ({"allow_servers": ("a",), "mcp": "deny"}, ["allow_servers names MCP servers, but mcp is deny"]),
        (
            {"allow_servers": ("a",), "deny_servers": ("a",)},
            ["a is both in allow_servers and in deny_servers"],
        ),
    ],
)
def test_contradictions(said: dict[str, Any], told: list[str]) -> None:
    """Allow and deny of one thing is told in one sentence each; what fits together is not."""
    found = list(contradictions(Permissions(**said)))
    assert len(found) == len(told)
    assert all(begin in sentence for begin, sentence in zip(told, found, strict=True))


@pytest.mark.parametrize(
    ("tool", "meant"),
    [
        ("run_shel_command", "run_shell_command"),
        ("Write_File", "write_file"),
        ("read_flie", "read_file"),
        ("write_file", None),
        ("mcp_lab_write_file", None),
        ("a_tool_of_a_later_release", None),
    ],
)
def test_a_misspelt_deny_is_named(tool: str, meant: str | None) -> None:
    """It would deny nothing. A tool that we have never heard of may well be one."""
    told = list(misspelled_tools(Permissions(deny_tools=(tool,))))
    assert told == ([f"deny_tools names {tool}, which is not a tool; did you mean {meant}?"] if meant else [])


def test_what_the_permissions_take_away() -> None:
    """Each tool with its reason; a capability takes all of its tools."""
    gone = denied_tools(Permissions(network="deny", deny_tools=("glob", "mcp_a_b")))
    assert set(gone) == {"google_web_search", "web_fetch", "glob", "mcp_a_b"}
    assert gone["web_fetch"] == "network is denied by the permissions of this run"
    assert denied_tools(Permissions(network="allow", allow_tools=("glob",))) == {}


def test_agents_stay_with_the_tool_that_calls_them() -> None:
    """A rule for an agent is one for `invoke_agent`: to keep that is to keep them."""
    agents = {"codebase_investigator", "cli_help", "generalist"}
    assert agents <= set(denied_tools(Permissions(only_tools=("glob",))))
    assert not agents & set(denied_tools(Permissions(only_tools=("invoke_agent",))))


def test_a_tool_that_nobody_knows_needs_yolo() -> None:
    """The CLI approves nothing but what it knows to be harmless."""
    assert modes_of(built_in("no_such_tool")) == ("yolo",)
    assert modes_of(built_in("read_file")) == get_args(Approval)


def test_a_rule_for_several_tools() -> None:
    """`*` at the end stands for any end, and alone for all."""
    assert fits("mcp_a_b", "mcp_a_*") and fits("glob", "*") and fits("glob", "glob")
    assert not fits("mcp_ab", "mcp_a_*") and not fits("glob", "glo")


_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "permissions.md"
# The rows of the page, as the table of the tests calls them.
_CALLS = {
    "read files": "read",
    "`google_web_search`": "search",
    "`web_fetch`": "fetch",
    "`write_file`": "write",
    "`replace`": "replace",
    "write to a build file": "build file",
    "`run_shell_command`": "shell",
    "a command with `>`": "shell >",
    "a command with a pipe": "shell |",
    "a command with `$()`": "shell $()",
    "a tool of an MCP server": "mcp",
    "`activate_skill`": "skill",
}


def test_the_page_says_what_the_modes_allow() -> None:
    """docs/how-to/permissions.md has the cells that are proven with the real CLI, and no others."""
    lines = [line for line in _PAGE.read_text().splitlines() if line.count("|") == 6 and "---" not in line]
    modes = [cell.strip(" `") for cell in lines[0].split("|")[2:-1]]
    told: dict[tuple[str, str], str] = {}
    for line in lines[1:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        [act] = [act for begin, act in _CALLS.items() if name.startswith(begin)]
        told |= {
            (mode, act): {"yes": "ok", "no": "denied"}[cell] for mode, cell in zip(modes, cells, strict=True)
        }
    assert told == {(row[0], row[2]): row[3] for row in TABLE if row[1] == "nothing"}


def test_the_page_names_every_permission() -> None:
    """Each field of `Permissions`, and the flag for it."""
    page = _PAGE.read_text()
    named = [field for field in fields() if field.name.startswith("permissions.")]
    assert len(named) == len(Permissions.__struct_fields__)
    assert [field.name for field in named if f"`{field.name.split('.')[1]}`" not in page] == []
    assert [field.flag for field in named if field.flag and field.flag not in page] == []
