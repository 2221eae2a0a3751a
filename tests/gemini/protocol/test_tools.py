"""Status, kind and title of tool calls, from the CLI's own texts."""

from __future__ import annotations

import pytest

from geminids.gemini.protocol.tool_results import denial_text, kind_of, paths_of, status_of, title_of
from geminids.gemini.tools import BUILT_IN, built_in, is_mcp_name, known_as, server_of, tools_with

_CONFIRM = (
    'Tool execution for "Shell" requires user confirmation, which is not supported in non-interactive mode.'
)


@pytest.mark.parametrize(
    ("status", "error", "message", "output", "expected"),
    [
        ("success", None, None, "hi", "ok"),
        ("success", None, None, None, "ok"),
        ("success", None, None, "Blocked: command substitution detected in shell command.", "denied"),
        ("success", None, None, "echo Blocked: command substitution", "ok"),
        ("error", "policy_violation", "Tool execution denied by policy.", None, "denied"),
        ("error", "unhandled_exception", _CONFIRM, None, "denied"),
        ("error", "unhandled_exception", 'Tool execution for "Shell" denied by policy.', None, "denied"),
        ("error", "tool_not_registered", 'Tool "x" not found.', None, "failed"),
        ("error", "file_not_found", "no such file", None, "failed"),
        ("error", None, None, None, "failed"),
        ("cancelled", None, None, None, "cancelled"),
    ],
)
def test_status_of_a_call(
    status: str, error: str | None, message: str | None, output: str | None, expected: str
) -> None:
    """A refused call is `denied`, not `failed`, also if the CLI reports a success."""
    assert status_of(status, error, message, output) == expected


def test_denial_text_keeps_the_text_of_the_cli() -> None:
    """`denial_text` is our reason, followed by the CLI's text if there is one."""
    assert denial_text("shell is denied", "no such tool") == "shell is denied (Gemini CLI: no such tool)"
    assert denial_text("shell is denied", None) == "shell is denied"


def test_every_built_in_tool_has_a_kind() -> None:
    """Every built-in tool has a kind, except three that are listed here."""
    without = {tool.name for tool in BUILT_IN if kind_of(tool.name) == "other"}
    assert without == {"activate_skill", "ask_user", "complete_task"}


def test_title_and_paths_of_a_call() -> None:
    """The title of a call is one line. `paths_of` returns the file paths of its arguments."""
    assert title_of("activate_skill", {"name": "star-chart"}) == "Skill star-chart"
    assert title_of("run_shell_command", {"command": "a\n  b"}) == "a b"
    assert title_of("run_shell_command", {"command": 3}) == "shell"
    assert paths_of({"file_path": "a", "dir_path": ".", "path": 3}) == ("a",)


def test_the_tools_of_a_capability() -> None:
    """`tools_with` lists the tools of a capability. An unknown tool is None."""
    assert tools_with("file_write") == ("write_file", "replace")
    assert tools_with("network") == ("google_web_search", "web_fetch")
    assert tools_with("skills") == ("activate_skill",)
    assert built_in("no_such_tool") is None


def test_names_of_mcp_tools() -> None:
    """A tool of a server is named `mcp_<server>_<tool>`.

    If two servers match, the longer name counts.
    """
    assert is_mcp_name("mcp_lab_mark")
    assert not is_mcp_name("read_mcp_resource")
    assert server_of("mcp_a_b_c", ("a", "a_b", "x")) == "a_b"
    assert server_of("mcp_a_b_c", ("x",)) is None
    assert known_as("search_file_content") == known_as("grep_search")
