"""MCP servers in the notations of other programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geminids import McpServer
from geminids.config.mcp import servers_of

_GEMINI = {
    "fs": {"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}, "timeout": 1500, "includeTools": ["r"]},
    "web": {"httpUrl": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "x"}, "trust": False},
}
_CLAUDE = {
    "fs": {"type": "stdio", "command": "npx"},
    "web": {"type": "http", "url": "http://127.0.0.1:1/mcp"},
}


def test_name_and_command_or_url() -> None:
    """`NAME=COMMAND` is split like a shell command; `NAME=URL` is a server with a URL."""
    assert servers_of("fs=npx -y 'a b'") == {"fs": McpServer(command="npx", args=("-y", "a b"))}
    assert servers_of("w=https://example.test/mcp") == {"w": McpServer(url="https://example.test/mcp")}


def test_the_json_of_gemini_and_of_claude(tmp_path: Path) -> None:
    """The JSON of Gemini CLI and of Claude is read, inline or from a file, with or without
    `mcpServers`.

    Milliseconds become seconds.
    """
    expected = {
        "fs": McpServer(command="npx", args=("-y", "x"), env={"A": "1"}, timeout=1.5, include_tools=("r",)),
        "web": McpServer(url="http://127.0.0.1:1/mcp", headers={"Authorization": "x"}),
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": _GEMINI}))
    assert servers_of(str(file)) == servers_of(json.dumps(_GEMINI)) == expected
    assert servers_of(json.dumps({"mcpServers": _CLAUDE})) == {
        "fs": McpServer(command="npx"),
        "web": McpServer(url="http://127.0.0.1:1/mcp"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"a": 1}', "is not an object like"),
        ('{"a": {"command": "x", "trust": true}}', "--allow-server a"),
        ('{"a": {"command": "x", "oauth": {}}}', "does not support these fields of a server: oauth"),
        ("absent.json", "is not NAME=COMMAND, JSON or a readable file"),
        ("fs=npx 'open", "cannot be split into words"),
        ("fs=", "no command"),
    ],
)
def test_an_invalid_server_is_reported(text: str, message: str) -> None:
    """An invalid server raises a ValueError that says what is wrong."""
    with pytest.raises(ValueError, match=message):
        servers_of(text)


def test_name_and_json() -> None:
    """`NAME={JSON}` is a server described by JSON, not a command."""
    text = 'db={"command": "serve", "env": {"DB_PASSWORD": "x"}}'
    assert servers_of(text) == {"db": McpServer(command="serve", env={"DB_PASSWORD": "x"})}
