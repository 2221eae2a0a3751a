"""Tests of the MCP server settings of a run: which servers start, and which of their tools are
visible."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.launch.settings.mcp_servers import server_names, server_settings
from geminids.options import McpServer, Options, Permissions

LAB = McpServer(command="lab", args=("-x",), env={"A": "b"}, timeout=1.5, include_tools=("mark",))
WEB = McpServer(url="http://127.0.0.1:1/mcp", headers={"X": "y"})
THEIRS = {"mcpServers": {"shed": {"command": "shed", "includeTools": ["a", "b"]}}}


def _settings(
    permissions: dict[str, Any] | None = None,
    user_settings: dict[str, Any] | None = None,
    **servers: McpServer,
) -> dict[str, Any]:
    options = Options(mcp_servers=servers, permissions=Permissions(**(permissions or {})))
    return server_settings(options, user_settings or {})


def test_a_server_becomes_cli_settings() -> None:
    """A server is written with the CLI's names and units (milliseconds, `httpUrl`); unset options
    are left out."""
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


def test_no_option_writes_no_setting() -> None:
    """Without options no setting is written, and the user's own servers stay."""
    assert _settings(user_settings=THEIRS) == {}
    assert server_names(Options(mcp_servers={"lab": LAB}), THEIRS) == ("shed", "lab")


@pytest.mark.parametrize("permissions", [{"mcp": "deny"}, {"mcp": "ask"}, {"only_tools": ("read_file",)}])
def test_no_server_starts(permissions: dict[str, Any]) -> None:
    """If no tool of a server may be called, `allowed` names a server that does not exist, because
    an empty list would allow all servers."""
    assert _settings(permissions, THEIRS, lab=LAB) == {"mcp": {"allowed": ["geminids-allows-none"]}}


def test_a_denied_server_is_added_to_the_users_own() -> None:
    """Denied servers are added to those that the user excludes, without duplicates."""
    user_settings = {**THEIRS, "mcp": {"excluded": ["old", "lab"]}}
    assert _settings({"deny_servers": ("lab", "shed")}, user_settings)["mcp"] == {
        "excluded": ["old", "lab", "shed"]
    }


def test_only_tools_limits_the_tools_of_servers() -> None:
    """With `only_tools`, each server shows only the named tools, also the user's servers.

    A server without a named tool does not start.
    """
    settings = _settings({"only_tools": ("mcp_shed_a", "mcp_web_x", "glob")}, THEIRS, lab=LAB, web=WEB)
    assert {name: server["includeTools"] for name, server in settings["mcpServers"].items()} == {
        "shed": ["a"],
        "web": ["x"],
    }
    assert settings["mcp"] == {"excluded": ["lab"]}


def test_only_tools_respects_include_tools() -> None:
    """`only_tools` does not show a tool that the server's own `includeTools` leaves out."""
    settings = _settings({"only_tools": ("mcp_shed_c", "mcp_lab_mark")}, THEIRS, lab=LAB)
    assert set(settings["mcpServers"]) == {"lab"}
    assert settings["mcp"] == {"excluded": ["shed"]}


def test_the_longest_server_name_matches() -> None:
    """A tool belongs to the server with the longest name that matches."""
    short, long = McpServer(command="x"), McpServer(command="y")
    settings = _settings({"only_tools": ("mcp_a_b_c",)}, a=short, a_b=long)
    assert settings["mcpServers"] == {"a_b": {"command": "y", "includeTools": ["c"]}}


@pytest.mark.parametrize("permissions", [{"mcp": "allow"}, {"allow_servers": ("lab", "unknown")}, {}])
def test_no_server_is_trusted(permissions: dict[str, Any]) -> None:
    """No server gets `trust`: policy rules allow its tools, and trust would allow more."""
    settings = _settings(permissions, THEIRS, lab=LAB)["mcpServers"]
    assert not any(server.get("trust") for server in settings.values())
