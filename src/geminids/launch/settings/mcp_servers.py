"""MCP servers and thinking effort as settings of the CLI."""

from __future__ import annotations

from typing import Any

from geminids.gemini.settings_file import Settings
from geminids.gemini.tools import is_mcp_name, server_of
from geminids.launch.permissions.verdicts import is_denied
from geminids.options import Effort, McpServer, Options

__all__ = ["distrusted_servers", "server_names", "server_settings", "thinking_settings"]

# A list of allowed servers that names none of them: an empty list would mean that all are.
_NONE = ["geminids-allows-none"]


def server_names(options: Options, users: Settings) -> tuple[str, ...]:
    """The servers of the user's and of this run."""
    return tuple(dict.fromkeys((*_theirs(users), *options.mcp_servers)))


def server_settings(options: Options, users: Settings) -> Settings:
    """`mcpServers` and `mcp` for this run, to be merged over the user's own."""
    permissions = options.permissions
    only = [tool for tool in permissions.only_tools if is_mcp_name(tool)]
    if is_denied(permissions, "mcp") or (permissions.only_tools and not only):
        return {"mcp": {"allowed": _NONE}}
    settings: Settings = {}
    servers: dict[str, Any] = {name: _as_settings(server) for name, server in options.mcp_servers.items()}
    excluded = list(permissions.deny_servers)
    if only:
        servers = {**_theirs(users), **servers}
        wanted = _wanted(servers, only)
        excluded += [name for name in servers if not wanted[name]]
        # Narrowed in its own settings: a rule of the user's for all of a server would let in its other tools.
        servers = {name: {**servers[name], "includeTools": tools} for name, tools in wanted.items() if tools}
    if servers:
        settings["mcpServers"] = servers
    if excluded:
        settings["mcp"] = {"excluded": list(dict.fromkeys([*_excluded(users), *excluded]))}
    return settings


def distrusted_servers(users: Settings) -> Settings:
    """Settings that take the user's trust away from MCP servers: on ACP it is a yes to every question."""
    servers = {name: {"trust": False} for name in _theirs(users)}
    return {"mcpServers": servers} if servers else {}


def _wanted(servers: dict[str, Any], only: list[str]) -> dict[str, list[str]]:
    """Each server with those of its tools that are named, and that its own settings do not keep back."""
    wanted: dict[str, list[str]] = {name: [] for name in servers}
    for tool in only:
        server = server_of(tool, tuple(servers))
        if server is not None:
            name = tool.removeprefix(f"mcp_{server}_")
            shown = servers[server].get("includeTools")
            if not isinstance(shown, list) or name in shown:
                wanted[server].append(name)
    return wanted


def _as_settings(server: McpServer) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "command": server.command,
        "args": list(server.args) or None,
        "env": server.env or None,
        "cwd": server.cwd,
        "httpUrl": server.url,
        "headers": server.headers or None,
        "timeout": int(server.timeout * 1000) if server.timeout else None,
        "includeTools": list(server.include_tools) or None,
        "excludeTools": list(server.exclude_tools) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _theirs(users: Settings) -> dict[str, Any]:
    servers = users.get("mcpServers")
    return {n: s for n, s in servers.items() if isinstance(s, dict)} if isinstance(servers, dict) else {}


def _excluded(users: Settings) -> list[Any]:
    mcp = users.get("mcp")
    excluded = mcp.get("excluded") if isinstance(mcp, dict) else None
    return list(excluded) if isinstance(excluded, list) else []


# Gemini 3 has no "off", Gemini 2.5 no levels; each gets what comes nearest.
_LEVELS: dict[str, str] = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
}
_BUDGETS: dict[str, int] = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576}
_STEPS = ((512, "MINIMAL"), (2048, "LOW"), (12288, "MEDIUM"))
# The least that gemini-2.5-pro takes: it cannot not think.
_LEAST_OF_PRO = 128
# What the CLI asks for itself goes to one of these, with the configuration of a chat (seen on 0.61.0).
_FOR_ITSELF = ("gemini-3.1-flash-lite", "gemini-3.5-flash-lite")


def thinking_settings(effort: Effort | int, model: str | None) -> Settings:
    """Settings that carry an effort to every chat model, whichever the CLI ends up with.

    The CLI's chat models inherit from two aliases, one a family; those are set anew. Requests that the CLI makes
    for itself (routing, summaries) inherit from others, or are kept as they are. `model` is the one that was asked for.
    """
    aliases = {
        "chat-base-3": _alias("chat-base", {"thinkingLevel": _level(effort)}),
        "chat-base-2.5": _alias("chat-base", {"thinkingBudget": _budget(effort)}),
        "gemini-2.5-pro": _alias(
            "chat-base-2.5", {"thinkingBudget": max(_budget(effort), _LEAST_OF_PRO)}, "gemini-2.5-pro"
        ),
    }
    if model not in ("flash-lite", *_FOR_ITSELF):
        aliases |= {own: _alias("chat-base", {"thinkingLevel": "HIGH"}, own) for own in _FOR_ITSELF}
    if model is not None and model.startswith("gemini-") and model not in aliases:
        # An id that the CLI may not know, and would give no thinking configuration at all.
        family = "chat-base-2.5" if model.startswith("gemini-2") else "chat-base-3"
        aliases[model] = {"extends": family, "modelConfig": {"model": model}}
    return {"modelConfigs": {"customAliases": aliases}}


def _alias(extends: str, thinking: dict[str, Any], model: str | None = None) -> dict[str, Any]:
    config: dict[str, Any] = {"generateContentConfig": {"thinkingConfig": thinking}}
    return {"extends": extends, "modelConfig": {**config, "model": model} if model else config}


def _level(effort: Effort | int) -> str:
    if isinstance(effort, str):
        return _LEVELS[effort]
    return next((level for most, level in _STEPS if effort <= most), "HIGH")


def _budget(effort: Effort | int) -> int:
    return _BUDGETS[effort] if isinstance(effort, str) else effort
