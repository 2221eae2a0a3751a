"""Permissions in lists, for releases before 0.34: what they can say, and what is refused rather than widened."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from geminids.launch.tool_lists import cannot_say, tool_lists
from geminids.launch.user_policies import UserPolicies
from geminids.options import CAPABILITIES, Approval, Permissions
from geminids.toolchain import release_of

OLD = release_of("0.24.0")


def _lists(
    approval: Approval = "default",
    users: dict[str, Any] | None = None,
    denied: tuple[str, ...] = (),
    version: str = "0.24.0",
    **said: Any,
) -> dict[str, Any]:
    return tool_lists(Permissions(**said), approval, release_of(version), users or {}, denied)


def test_nothing_said_is_nothing_set() -> None:
    """A run without permissions has the user's own lists."""
    assert _lists(users={"tools": {"allowed": ["glob"], "exclude": ["ls"]}}) == {}


def test_an_allow_is_added_to_the_users_own() -> None:
    """Tools by name."""
    said: dict[str, Any] = {"file_write": "allow", "allow_tools": ("glob",)}
    tools = _lists(users={"tools": {"allowed": ["theirs"]}}, **said)["tools"]
    assert tools == {"allowed": ["theirs", "write_file", "replace", "glob"]}


def test_in_yolo_nothing_is_allowed_by_name() -> None:
    """An entry there outranks yolo itself, and then refuses redirections."""
    assert "tools" not in _lists("yolo", shell="allow", allow_tools=("glob",))


def test_a_deny_is_added_to_the_users_own() -> None:
    """All tools of a capability, and those by name."""
    tools = _lists(users={"tools": {"exclude": ["theirs"]}}, network="deny", deny_tools=("glob",))["tools"]
    assert tools == {"exclude": ["theirs", "google_web_search", "web_fetch", "glob"]}


def test_only_tools_restrict_and_exclude() -> None:
    """The named ones stay, under their old name too; all others that we know are excluded besides."""
    tools = _lists(only_tools=("grep_search",))["tools"]
    assert tools["core"] == ["grep_search", "search_file_content"]
    assert {"read_file", "write_file", "run_shell_command"} <= set(tools["exclude"])
    assert not {"grep_search", "search_file_content"} & set(tools["exclude"])


def test_only_tools_do_not_widen_the_users_core() -> None:
    """What the user has left out of `tools.core` stays out."""
    tools = _lists(users={"tools": {"core": ["glob"]}}, only_tools=("glob", "write_file"))["tools"]
    assert tools["core"] == ["glob"]


def test_what_the_user_denies_is_not_allowed() -> None:
    """An allow in a list would outrank most policies of the user's."""
    tools = _lists(denied=("write_file", "run_*"), file_write="allow", shell="allow")["tools"]
    assert "replace" in tools["allowed"]
    assert not {"write_file", "run_shell_command"} & set(tools["allowed"])


@pytest.mark.parametrize("approval", get_args(Approval))
def test_plan_mode_is_no_door_to_yolo(approval: Approval) -> None:
    """From the first release with plan mode on, with nothing said at all; before it there is no such tool."""
    doors = ["enter_plan_mode", "exit_plan_mode"]
    expected = {} if approval == "yolo" else {"tools": {"exclude": doors}}
    assert _lists(approval, version="0.32.1") == expected
    assert _lists(approval) == {}


@pytest.mark.parametrize(("power", "on"), [("allow", True), ("deny", False), ("ask", False)])
def test_skills_are_switched(power: str, on: bool) -> None:
    """0.24 has them off unless they are asked for."""
    assert _lists(skills=power)["experimental"] == {"skills": on}
    assert "experimental" not in _lists(skills="deny", version="0.17.1")


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        ("0.24.0", {}, []),
        ("0.24.0", dict.fromkeys(CAPABILITIES, "allow"), []),
        ("0.24.0", {"only_tools": ("glob",), "deny_servers": ("a",)}, []),
        ("0.24.0", {"allow_commands": ("ls",)}, ["allow_commands"]),
        ("0.24.0", {"deny_commands": ("rm",)}, ["deny_commands"]),
        ("0.24.0", {"only_tools": ("mcp_a_b",)}, ["only_tools with tools of MCP servers"]),
        ("0.24.0", {"only_tools": ("a__b",)}, ["only_tools with tools of MCP servers"]),
        ("0.17.1", {"skills": "allow"}, ["allow skills"]),
        ("0.11.3", {"shell": "allow", "mcp": "allow"}, ["allow shell, mcp"]),
        ("0.11.3", {"allow_tools": ("glob",)}, ["allow_tools"]),
        ("0.11.3", {"shell": "deny", "deny_tools": ("glob",)}, []),
    ],
)
def test_what_cannot_be_said(version: str, said: dict[str, Any], told: list[str]) -> None:
    """It is named, and what can be said is not."""
    assert list(cannot_say(Permissions(**said), release_of(version), UserPolicies())) == told


def test_an_allow_beside_a_users_deny_for_some_arguments_cannot_be_said() -> None:
    """The allow would win over all of it; a deny for another tool is no hindrance."""
    said = Permissions(shell="allow")
    [told] = cannot_say(said, OLD, UserPolicies(partly=("run_shell_command",)))
    assert told.startswith("allow run_shell_command beside the user's own policy")
    assert not list(cannot_say(said, OLD, UserPolicies(partly=("write_file",))))
