"""MCP servers of a run: which there are, which may start, which of their tools are seen."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.launch.settings.mcp_servers import server_names, server_settings
from geminids.options import McpServer, Options, Permissions

LAB = McpServer(command="lab", args=("-x",), env={"A": "b"}, timeout=1.5, include_tools=("mark",))
WEB = McpServer(url="http://127.0.0.1:1/mcp", headers={"X": "y"})
THEIRS = {"mcpServers": {"shed": {"command": "shed", "includeTools": ["a", "b"]}}}


def _settings(
    said: dict[str, Any] | None = None,
    users: dict[str, Any] | None = None,
    **servers: McpServer,
) -> dict[str, Any]:
    options = Options(mcp_servers=servers, permissions=Permissions(**(said or {})))
    return server_settings(options, users or {})


def test_a_server_in_the_clis_terms() -> None:
    """Milliseconds, `httpUrl`, and nothing that was not said."""
    assert _settings(lab=LAB, web=WEB)["mcpServers"] == {
        "lab": {
            "command": "lab",
            "args": ["-x"],
            "env": {"A": "b"},
            "timeout": 1500,
            "includeTools": ["mark"],
        },
        "web": {"httpUrl": "http://127.0.0.1:1/mcp", "headers": {"X": "y"}},
    }


def test_nothing_said_is_nothing_set() -> None:
    """The user's own servers stay as they are."""
    assert _settings(users=THEIRS) == {}
    assert server_names(Options(mcp_servers={"lab": LAB}), THEIRS) == ("shed", "lab")


@pytest.mark.parametrize("said", [{"mcp": "deny"}, {"mcp": "ask"}, {"only_tools": ("read_file",)}])
def test_no_server_starts(said: dict[str, Any]) -> None:
    """Where no tool of a server may be called, none is started: an empty list would mean all of them."""
    assert _settings(said, THEIRS, lab=LAB) == {"mcp": {"allowed": ["geminids-allows-none"]}}


def test_a_denied_server_is_added_to_the_users_own() -> None:
    """What the user has excluded stays so, and nothing is named twice."""
    users = {**THEIRS, "mcp": {"excluded": ["old", "lab"]}}
    assert _settings({"deny_servers": ("lab", "shed")}, users)["mcp"] == {"excluded": ["old", "lab", "shed"]}


def test_only_the_named_tools_of_a_server_are_seen() -> None:
    """Servers of the user's included; one of which nothing is wanted does not start."""
    settings = _settings({"only_tools": ("mcp_shed_a", "mcp_web_x", "glob")}, THEIRS, lab=LAB, web=WEB)
    assert {name: server["includeTools"] for name, server in settings["mcpServers"].items()} == {
        "shed": ["a"],
        "web": ["x"],
    }
    assert settings["mcp"] == {"excluded": ["lab"]}


def test_what_a_server_keeps_back_stays_back() -> None:
    """`only_tools` shows no tool that the server's own `includeTools` leaves out."""
    settings = _settings({"only_tools": ("mcp_shed_c", "mcp_lab_mark")}, THEIRS, lab=LAB)
    assert set(settings["mcpServers"]) == {"lab"}
    assert settings["mcp"] == {"excluded": ["shed"]}


def test_names_with_an_underscore() -> None:
    """The longest server whose name fits has the tool."""
    one, two = McpServer(command="x"), McpServer(command="y")
    settings = _settings({"only_tools": ("mcp_a_b_c",)}, a=one, a_b=two)
    assert settings["mcpServers"] == {"a_b": {"command": "y", "includeTools": ["c"]}}


@pytest.mark.parametrize("said", [{"mcp": "allow"}, {"allow_servers": ("lab", "unknown")}, {}])
def test_no_server_is_trusted(said: dict[str, Any]) -> None:
    """Rules allow the tools of a server: to trust it would allow more."""
    settings = _settings(said, THEIRS, lab=LAB)["mcpServers"]
    assert not any(server.get("trust") for server in settings.values())
