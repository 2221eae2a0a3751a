"""Convert MCP servers and the thinking effort to settings of the CLI."""

from __future__ import annotations

from typing import Any

from geminids.gemini.settings_file import Settings
from geminids.gemini.tools import is_mcp_name, server_of
from geminids.launch.permissions.verdicts import is_denied
from geminids.options import Effort, McpServer, Options

__all__ = ["server_names", "server_settings", "thinking_settings", "untrusted_servers"]

# A list of allowed servers that matches none. An empty list would allow all.
_NONE = ["geminids-allows-none"]


def server_names(options: Options, users: Settings) -> tuple[str, ...]:
    """Return the names of the user's servers and of this run's."""
    return tuple(dict.fromkeys((*_user_servers(users), *options.mcp_servers)))


def server_settings(options: Options, users: Settings) -> Settings:
    """Return `mcpServers` and `mcp` for this run, to merge over the user's settings."""
    permissions = options.permissions
    only = [tool for tool in permissions.only_tools if is_mcp_name(tool)]
    if is_denied(permissions, "mcp") or (permissions.only_tools and not only):
        return {"mcp": {"allowed": _NONE}}
    settings: Settings = {}
    servers: dict[str, Any] = {name: _as_settings(server) for name, server in options.mcp_servers.items()}
    excluded = list(permissions.deny_servers)
    if only:
        servers = {**_user_servers(users), **servers}
        offered = _offered_tools(servers, only)
        excluded += [name for name in servers if not offered[name]]
        # Restrict the tools in the server's settings: a user's rule for the whole server could
        # allow its other tools.
        servers = {name: {**servers[name], "includeTools": tools} for name, tools in offered.items() if tools}
    if servers:
        settings["mcpServers"] = servers
    if excluded:
        settings["mcp"] = {"excluded": list(dict.fromkeys([*_excluded(users), *excluded]))}
    return settings


def untrusted_servers(users: Settings) -> Settings:
    """Return settings that remove `trust` from the user's servers.

    With it, ACP never asks for their tools.
    """
    servers = {name: {"trust": False} for name in _user_servers(users)}
    return {"mcpServers": servers} if servers else {}


def _offered_tools(servers: dict[str, Any], only: list[str]) -> dict[str, list[str]]:
    """Return the tools in `only` of each server, without those that its own settings exclude."""
    offered: dict[str, list[str]] = {name: [] for name in servers}
    for tool in only:
        server = server_of(tool, tuple(servers))
        if server is not None:
            name = tool.removeprefix(f"mcp_{server}_")
            included = servers[server].get("includeTools")
            if not isinstance(included, list) or name in included:
                offered[server].append(name)
    return offered


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


def _user_servers(users: Settings) -> dict[str, Any]:
    servers = users.get("mcpServers")
    return {n: s for n, s in servers.items() if isinstance(s, dict)} if isinstance(servers, dict) else {}


def _excluded(users: Settings) -> list[Any]:
    mcp = users.get("mcp")
    excluded = mcp.get("excluded") if isinstance(mcp, dict) else None
    return list(excluded) if isinstance(excluded, list) else []


# Gemini 3 cannot turn thinking off, and Gemini 2.5 has no levels: each gets the nearest value.
_LEVELS: dict[str, str] = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
}
_BUDGETS: dict[str, int] = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576}
_STEPS = ((512, "MINIMAL"), (2048, "LOW"), (12288, "MEDIUM"))
# The minimum of gemini-2.5-pro, which always thinks.
_PRO_MINIMUM = 128
# The CLI sends its own requests to one of these, with the configuration of a chat (seen on 0.61.0).
_UTILITY_MODELS = ("gemini-3.1-flash-lite", "gemini-3.5-flash-lite")


def thinking_settings(effort: Effort | int, model: str | None) -> Settings:
    """Return settings that apply an effort to every chat model that the CLI may choose.

    The CLI's chat models inherit from two aliases, one per model family; these settings redefine
    them. The CLI's own requests (routing, summaries) inherit from other aliases or keep their
    values. `model` is the model that the caller chose.
    """
    aliases = {
        "chat-base-3": _alias("chat-base", {"thinkingLevel": _level(effort)}),
        "chat-base-2.5": _alias("chat-base", {"thinkingBudget": _budget(effort)}),
        "gemini-2.5-pro": _alias(
            "chat-base-2.5", {"thinkingBudget": max(_budget(effort), _PRO_MINIMUM)}, "gemini-2.5-pro"
        ),
    }
    if model not in ("flash-lite", *_UTILITY_MODELS):
        aliases |= {name: _alias("chat-base", {"thinkingLevel": "HIGH"}, name) for name in _UTILITY_MODELS}
    if model is not None and model.startswith("gemini-") and model not in aliases:
        # The CLI may not know this id, and would then send no thinking configuration.
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
