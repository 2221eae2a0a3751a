"""Parse a value of `--mcp`: a command, a URL, or the `mcpServers` JSON of Gemini CLI and Claude."""

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
# Keys that are accepted in an entry of `mcpServers`, but are not passed to the CLI.
_IGNORED = ("description", "type", "name", "disabled", "trust")


def servers_of(text: str) -> dict[str, McpServer]:
    """Parse a value of `--mcp`, and return a dict from names to MCP servers.

    Servers with `"disabled": true` are left out. The value is `NAME=COMMAND`, `NAME=https://...`,
    `NAME=JSON`, JSON, or the path of a JSON file. Raises `ValueError` if it is none of these, or if
    the JSON does not describe MCP servers.

    >>> servers_of("files=npx -y some-server /data")["files"].args
    ('-y', 'some-server', '/data')
    """
    if text.lstrip().startswith("{"):
        return _from_json(text, "the JSON")
    name, equals, words = text.partition("=")
    if equals and name.strip() and words.lstrip().startswith("{"):
        return _from_json(f'{{"{name.strip()}": {words}}}', f"the text after {name.strip()}=")
    if equals and name.strip() and not Path(text).is_file():
        return {name.strip(): _from_words(words.strip())}
    path = Path(text)
    try:
        if path.is_file() and path.stat().st_size > _BIGGEST:
            raise ValueError(f"{text} is larger than 1 MB")
        return _from_json(path.read_text("utf-8-sig"), text)
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"{text!r} is not NAME=COMMAND, JSON or a readable file: {reason}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{text} is not UTF-8") from None


def _from_words(words: str) -> McpServer:
    if words.startswith(("http://", "https://")):
        return McpServer(url=words)
    try:
        parts = shlex.split(words)
    except ValueError as error:
        raise ValueError(f"the command cannot be split into words: {error}") from None
    if not parts:
        raise ValueError("there is no command after the `=`")
    return McpServer(command=parts[0], args=tuple(parts[1:]))


def _from_json(text: str, where: str) -> dict[str, McpServer]:
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    servers = decoded.get("mcpServers", decoded) if isinstance(decoded, dict) else None
    if not isinstance(servers, dict) or not all(isinstance(server, dict) for server in servers.values()):
        raise ValueError(f'{where} is not an object like {{"mcpServers": {{"name": {{"command": "..."}}}}}}')
    return {
        name: _server(name, server) for name, server in servers.items() if server.get("disabled") is not True
    }


def _server(name: str, entry: Mapping[str, Any]) -> McpServer:
    if entry.get("trust") is True:
        raise ValueError(f"{name}: trust is not supported here; use --allow-server {name} instead")
    fields: dict[str, Any] = {key: entry[key] for key in _SAME if key in entry}
    fields["url"] = entry.get("httpUrl", entry.get("url"))
    if isinstance(entry.get("timeout"), (int, float)):
        fields["timeout"] = entry["timeout"] / 1000  # both formats use milliseconds
    for theirs, ours in (("includeTools", "include_tools"), ("excludeTools", "exclude_tools")):
        if theirs in entry:
            fields[ours] = entry[theirs]
    known = {*_SAME, *_IGNORED, "url", "httpUrl", "timeout", "includeTools", "excludeTools"}
    if unknown := [key for key in entry if key not in known]:
        raise ValueError(f"{name}: geminids does not support these fields of a server: {', '.join(unknown)}")
    for key, value in fields.items():
        if isinstance(value, list):
            fields[key] = tuple(value)
    return McpServer(**fields)
