"""Tests of `Verdicts` and of contradictory permissions: the reason why a call was refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from geminids.options.flags import fields
from permission_table import TABLE

SHELL = "run_shell_command"


@pytest.mark.parametrize(
    ("approval", "permissions", "tool", "reason"),
    [
        ("default", {}, "read_file", None),
        ("default", {}, "google_web_search", None),
        (
            "default",
            {},
            "write_file",
            "`approval='default'` does not allow write_file; "
            "use `permissions.file_write='allow'` or another approval mode",
        ),
        ("auto_edit", {}, "write_file", None),
        (
            "auto_edit",
            {},
            "save_memory",
            "`approval='auto_edit'` does not allow save_memory; "
            "use `permissions.allow_tools=['save_memory']` or another approval mode",
        ),
        ("yolo", {}, SHELL, None),
        ("plan", {}, "write_file", "`approval='plan'` does not allow write_file"),
        ("plan", {"file_write": "allow"}, "write_file", "`approval='plan'` does not allow write_file"),
        ("plan", {"allow_tools": (SHELL,)}, SHELL, f"`approval='plan'` does not allow {SHELL}"),
        ("plan", {"network": "allow"}, "web_fetch", None),
        ("plan", {"allow_tools": ("web_fetch",)}, "web_fetch", None),
        ("default", {"file_write": "allow"}, "write_file", None),
        ("yolo", {"file_write": "deny"}, "replace", "file_write is denied by the permissions of this run"),
        (
            "yolo",
            {"shell": "ask"},
            SHELL,
            "shell needs permission, but a headless run cannot ask for it",
        ),
        ("yolo", {"deny_tools": ("glob",)}, "glob", "glob is in `deny_tools`"),
        ("yolo", {"deny_tools": ("search_file_content",)}, "grep_search", "grep_search is in `deny_tools`"),
        ("yolo", {"only_tools": ("glob",)}, "read_file", "read_file is not in `only_tools`"),
        ("yolo", {"only_tools": ("grep_search",)}, "search_file_content", None),
        ("yolo", {"mcp": "deny"}, "mcp_lab_mark", "mcp is denied by the permissions of this run"),
        ("yolo", {"deny_servers": ("lab",)}, "mcp_lab_mark", "the MCP server lab is in `deny_servers`"),
        ("default", {"allow_servers": ("lab",)}, "mcp_lab_mark", None),
        (
            "default",
            {},
            "mcp_lab_mark",
            "`approval='default'` does not allow mcp_lab_mark; "
            "use `permissions.mcp='allow'` or another approval mode",
        ),
        ("default", {}, "no_such_tool", None),
        ("yolo", {}, "ask_user", "ask_user needs a user who answers, but a headless run has no user"),
        (
            "default",
            {},
            "exit_plan_mode",
            "exit_plan_mode would change the approval mode from default to yolo",
        ),
        ("yolo", {}, "exit_plan_mode", None),
    ],
)
def test_the_reason_for_a_tool(
    approval: Approval, permissions: dict[str, Any], tool: str, reason: str | None
) -> None:
    """The reason names the permission or the approval mode that forbids the call; it is None if
    neither does."""
    assert Verdicts(approval, Permissions(**permissions), ("lab",)).why_not(tool, {}) == reason


_PART = "a part of the command is not in `allow_commands`"
_REDIRECTS = "the command redirects its input or output, but file_write is not allowed"


@pytest.mark.parametrize(
    ("approval", "permissions", "command", "reason"),
    [
        ("default", {"allow_commands": ("git status",)}, "git status && rm x", _PART),
        ("default", {"allow_commands": ("git status ",)}, "git status > x", _REDIRECTS),
        ("default", {"allow_commands": ("git status",)}, "ls > x", _PART),
        ("auto_edit", {"allow_commands": ("git status",)}, "ls", _PART),
        ("plan", {"allow_commands": ("ls",)}, "ls", f"`approval='plan'` does not allow {SHELL}"),
        ("yolo", {"allow_commands": ("ls",)}, "rm x", None),
        ("yolo", {"deny_commands": ("rm ",)}, "ls; rm x", "'rm ' is in `deny_commands`"),
        ("default", {"shell": "allow", "deny_commands": ("rm",)}, "rm x", "'rm' is in `deny_commands`"),
        ("default", {"shell": "allow", "file_write": "deny"}, "ls > x", _REDIRECTS),
        ("default", {"shell": "allow"}, "ls > x", None),
        ("default", {"shell": "allow", "allow_commands": ("ls",)}, "rm x", None),
    ],
)
def test_the_reason_for_a_command(
    approval: Approval, permissions: dict[str, Any], command: str, reason: str
) -> None:
    """The reason tells apart a denied command, a part that is not allowed, a redirection and a
    denied shell."""
    assert Verdicts(approval, Permissions(**permissions)).why_not(SHELL, {"command": command}) == reason


def test_the_users_own_deny_is_named() -> None:
    """If neither mode nor permissions forbid a call, the reason is a deny in the user's own
    policies."""
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
    approval: Approval, tool: str, arguments: dict[str, Any], permissions: dict[str, Any]
) -> None:
    """For any arguments of a call, `why_not` returns a reason or None and does not raise."""
    reason = Verdicts(approval, Permissions(**permissions)).why_not(tool, {"command": 3, **arguments})
    assert reason is None or reason.strip()


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ({"shell": "allow", "deny_tools": ("glob",), "allow_tools": ("read_file",)}, []),
        (
            {"allow_tools": ("glob",), "deny_tools": ("glob",)},
            ["glob is both in `allow_tools` and in `deny_tools`"],
        ),
        (
            {"allow_tools": ("replace",), "file_write": "ask"},
            ["replace is in `allow_tools`, but file_write is ask"],
        ),
        (
            {"allow_tools": ("glob",), "only_tools": ("ls",)},
            ["glob is in `allow_tools`, but not in `only_tools`"],
        ),
        ({"allow_tools": ("mcp_a_b",), "mcp": "deny"}, ["mcp_a_b is in `allow_tools`, but mcp is deny"]),
        (
            {"allow_tools": ("mcp_a_b",), "deny_servers": ("a",)},
            ["mcp_a_b is in `allow_tools`, but its server a is in `deny_servers`"],
        ),
        (
            {"only_tools": ("glob",), "deny_tools": ("glob",)},
            ["glob is both in `only_tools` and in `deny_tools`"],
        ),
        (
            {"allow_commands": ("ls",), "shell": "deny"},
            ["`allow_commands` names shell commands, but shell is deny"],
        ),
        (
            {"allow_commands": ("ls",), "deny_tools": (SHELL,)},
            [f"`allow_commands` names shell commands, but {SHELL} is in `deny_tools`"],
        ),
        (
            {"allow_commands": ("ls",), "only_tools": ("glob",)},
            [f"`allow_commands` names shell commands, but {SHELL} is not in `only_tools`"],
        ),
        (
            {"allow_commands": ("ls", "rm"), "deny_commands": ("ls",)},
            ["'ls' is both in `allow_commands` and in"],
        ),
        ({"allow_servers": ("a",), "mcp": "deny"}, ["`allow_servers` names MCP servers, but mcp is deny"]),
        (
            {"allow_servers": ("a",), "deny_servers": ("a",)},
            ["a is both in `allow_servers` and in `deny_servers`"],
        ),
    ],
)
def test_contradictions(permissions: dict[str, Any], expected: list[str]) -> None:
    """Each permission that is both allowed and denied is reported in one sentence."""
    sentences = list(contradictions(Permissions(**permissions)))
    assert len(sentences) == len(expected)
    assert all(begin in sentence for begin, sentence in zip(expected, sentences, strict=True))


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
def test_a_misspelled_deny_is_reported(tool: str, meant: str | None) -> None:
    """A misspelled tool in `deny_tools` is reported, because it would deny nothing.

    Other unknown names may be tools of a newer release.
    """
    reported = list(misspelled_tools(Permissions(deny_tools=(tool,))))
    assert reported == (
        [f"`deny_tools` names {tool}, which is not a tool; did you mean {meant}?"] if meant else []
    )


def test_denied_tools_have_reasons() -> None:
    """`denied_tools` returns each denied tool with its reason; a denied capability denies all of
    its tools."""
    denied = denied_tools(Permissions(network="deny", deny_tools=("glob", "mcp_a_b")))
    assert set(denied) == {"google_web_search", "web_fetch", "glob", "mcp_a_b"}
    assert denied["web_fetch"] == "network is denied by the permissions of this run"
    assert denied_tools(Permissions(network="allow", allow_tools=("glob",))) == {}


def test_agents_depend_on_invoke_agent() -> None:
    """`only_tools` with `invoke_agent` keeps the agents; without it they are denied."""
    agents = {"codebase_investigator", "cli_help", "generalist"}
    assert agents <= set(denied_tools(Permissions(only_tools=("glob",))))
    assert not agents & set(denied_tools(Permissions(only_tools=("invoke_agent",))))


def test_an_unknown_tool_needs_yolo() -> None:
    """An unknown tool runs only in yolo mode, because the CLI approves only tools that it knows to
    be harmless."""
    assert modes_of(built_in("no_such_tool")) == ("yolo",)
    assert modes_of(built_in("read_file")) == get_args(Approval)


def test_a_rule_may_end_with_a_star() -> None:
    """`*` at the end of a rule matches any ending, and `*` alone matches every tool."""
    assert fits("mcp_a_b", "mcp_a_*") and fits("glob", "*") and fits("glob", "glob")
    assert not fits("mcp_ab", "mcp_a_*") and not fits("glob", "glo")


_PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "permissions.md"
# Maps the rows of the page to the names in the table of the tests.
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


def test_the_table_of_the_docs_is_true() -> None:
    """The table of docs/how-to/permissions.md equals the table that the tests with the real CLI
    check."""
    lines = [line for line in _PAGE.read_text().splitlines() if line.count("|") == 6 and "---" not in line]
    modes = [cell.strip(" `") for cell in lines[0].split("|")[2:-1]]
    reported: dict[tuple[str, str], str] = {}
    for line in lines[1:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        [act] = [act for begin, act in _CALLS.items() if name.startswith(begin)]
        reported |= {
            (mode, act): {"yes": "ok", "no": "denied"}[cell] for mode, cell in zip(modes, cells, strict=True)
        }
    assert reported == {(row[0], row[2]): row[3] for row in TABLE if row[1] == "nothing"}


def test_the_docs_name_every_permission() -> None:
    """docs/how-to/permissions.md names each field of `Permissions` and its flag."""
    page = _PAGE.read_text()
    named = [field for field in fields() if field.name.startswith("permissions.")]
    assert len(named) == len(Permissions.__struct_fields__)
    assert [field.name for field in named if f"`{field.name.split('.')[1]}`" not in page] == []
    assert [field.flag for field in named if field.flag and field.flag not in page] == []
