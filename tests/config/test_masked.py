"""`masked` removes the secrets from options before they are shown."""

from __future__ import annotations

from geminids import McpServer, Options
from geminids.cli.commands.config import masked


def test_secrets_of_variables_headers_and_addresses_are_masked() -> None:
    """Secret variables, headers and passwords in URLs are masked, also where their value occurs
    again.

    Other values stay.
    """
    server = McpServer(url="http://me:pass@127.0.0.1/?k=hunter2hunter2", headers={"X": "hunter2hunter2"})
    tool = McpServer(
        command="x", args=("--token", "hunter3hunter3"), env={"A_KEY": "hunter3hunter3", "B": "b"}
    )
    shown = masked(
        Options(model="pro", env={"PASSWORD": "x", "LANG": "C"}, mcp_servers={"a": server, "b": tool})
    )
    assert (shown.model, shown.env) == ("pro", {"PASSWORD": "***", "LANG": "C"})
    assert shown.mcp_servers["a"] == McpServer(url="http://***@127.0.0.1/?k=***", headers={"X": "***"})
    assert shown.mcp_servers["b"] == McpServer(
        command="x", args=("--token", "***"), env={"A_KEY": "***", "B": "b"}
    )
