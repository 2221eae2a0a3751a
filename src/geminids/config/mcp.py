"""MCP servers as they are written elsewhere (`mcpServers` of Gemini CLI and of Claude, or a command), to ours."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from geminids.options import McpServer

__all__ = ["servers_of"]

_BIGGEST = 1024 * 1024
_SAME = ("command", "args", "env", "cwd", "headers")
# Said about a server, and no matter for a run.
_IDLE = ("description", "type", "name", "disabled", "trust")


def servers_of(text: str) -> dict[str, McpServer]:
    """The servers that `--mcp` names: `NAME=COMMAND`, `NAME=https://...`, `NAME=JSON`, JSON, or a file of it.

    Raises `ValueError` with what is wrong.

    >>> servers_of("files=npx -y some-server /data")["files"].args
    ('-y', 'some-server', '/data')
    """
    if text.lstrip().startswith("{"):
        return _from_json(text, "the JSON")
    name, equals, words = text.partition("=")
    if equals and name.strip() and words.lstrip().startswith("{"):
        return _from_json(f'{{"{name.strip()}": {words}}}', f"what stands behind {name.strip()}=")
    if equals and name.strip() and not Path(text).is_file():
        return {name.strip(): _from_words(words.strip())}
    path = Path(text)
    try:
        if path.is_file() and path.stat().st_size > _BIGGEST:
            raise ValueError(f"{text} is larger than 1 MB")
        return _from_json(path.read_text("utf-8-sig"), text)
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"{text!r} is neither NAME=COMMAND nor JSON nor a readable file: {reason}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{text} is not UTF-8") from None


def _from_words(words: str) -> McpServer:
    if words.startswith(("http://", "https://")):
        return McpServer(url=words)
    try:
        parts = shlex.split(words)
    except ValueError as error:
        raise ValueError(f"the command cannot be taken apart: {error}") from None
    if not parts:
        raise ValueError("there is no command behind the =")
    return McpServer(command=parts[0], args=tuple(parts[1:]))


def _from_json(text: str, where: str) -> dict[str, McpServer]:
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    servers = given.get("mcpServers", given) if isinstance(given, dict) else None
    if not isinstance(servers, dict) or not all(isinstance(server, dict) for server in servers.values()):
        raise ValueError(f'{where} is no object such as {{"mcpServers": {{"name": {{"command": "..."}}}}}}')
    return {
        name: _server(name, server) for name, server in servers.items() if server.get("disabled") is not True
    }


def _server(name: str, given: Mapping[str, Any]) -> McpServer:
    if given.get("trust") is True:
        raise ValueError(f"{name}: trust is not taken from there; --allow-server {name} says the same")
    made: dict[str, Any] = {key: given[key] for key in _SAME if key in given}
    made["url"] = given.get("httpUrl", given.get("url"))
    if isinstance(given.get("timeout"), (int, float)):
        made["timeout"] = given["timeout"] / 1000  # both count milliseconds
    for theirs, ours in (("includeTools", "include_tools"), ("excludeTools", "exclude_tools")):
        if theirs in given:
            made[ours] = given[theirs]
    understood = {*_SAME, *_IDLE, "url", "httpUrl", "timeout", "includeTools", "excludeTools"}
    if unknown := [key for key in given if key not in understood]:
        raise ValueError(f"{name}: {', '.join(unknown)} cannot be given to a run")
    for key, value in made.items():
        if isinstance(value, list):
            made[key] = tuple(value)
    return McpServer(**made)
