"""Convert the options for MCP servers and for the thinking effort to settings of the CLI."""

from __future__ import annotations

from typing import Any

from geminids.gemini.settings_file import Settings
from geminids.gemini.tools import is_mcp_name, server_of
from geminids.launch.permissions.verdicts import is_denied
from geminids.options import Effort, McpServer, Options

__all__ = ["server_names", "server_settings", "thinking_settings", "untrusted_servers"]

# This list of allowed servers matches no server. An empty list would allow all servers.
_NONE = ["geminids-allows-none"]


def server_names(options: Options, users: Settings) -> tuple[str, ...]:
    """Return the names of all MCP servers of a run. `users` are the user's settings."""
    return tuple(dict.fromkeys((*_user_servers(users), *options.mcp_servers)))


def server_settings(options: Options, users: Settings) -> Settings:
    """Return the settings `mcpServers` and `mcp` of a run.

    `users` are the user's settings. The caller merges the result with the user's settings; the
    values of the result override the user's values.
    """
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
        # Also restrict the tools in the server's settings: a rule of the user could allow all tools
        # of the server.
        servers = {name: {**servers[name], "includeTools": tools} for name, tools in offered.items() if tools}
    if servers:
        settings["mcpServers"] = servers
    if excluded:
        settings["mcp"] = {"excluded": list(dict.fromkeys([*_excluded(users), *excluded]))}
    return settings


def untrusted_servers(users: Settings) -> Settings:
    """Return settings that make all MCP servers of the user's settings (`users`) untrusted.

    This is needed because in ACP, the CLI never asks for permission to call a tool of a trusted
    server.
    """
    servers = {name: {"trust": False} for name in _user_servers(users)}
    return {"mcpServers": servers} if servers else {}


def _offered_tools(servers: dict[str, Any], only: list[str]) -> dict[str, list[str]]:
    """Return for each server those tools of `only` that the server's settings allow.

    The setting `includeTools` of a server can restrict its tools. `only` contains full names of MCP
    tools. The result contains the names without the prefix `mcp_SERVER_`.
    """
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


# Gemini 3 uses levels and cannot turn thinking off. Gemini 2.5 uses budgets and has no levels. Each
# model family gets the value that is nearest to the option `effort`.
_LEVELS: dict[str, str] = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
}
_BUDGETS: dict[str, int] = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576}
_STEPS = ((512, "MINIMAL"), (2048, "LOW"), (12288, "MEDIUM"))
# The smallest thinking budget of gemini-2.5-pro, which cannot turn thinking off.
_PRO_MINIMUM = 128
# The CLI sends its own requests (routing, summaries) to one of these models, with the configuration
# of a chat model (seen on 0.61.0).
_UTILITY_MODELS = ("gemini-3.1-flash-lite", "gemini-3.5-flash-lite")


def thinking_settings(effort: Effort | int, model: str | None) -> Settings:
    """Return settings that set the thinking effort of every chat model that the CLI may choose.

    `effort` is a level, or a number of thinking tokens. `model` is the model that the user chose;
    None if the CLI chooses.

    The CLI's chat models inherit from two aliases, one for each model family. The returned settings
    redefine these aliases. The thinking effort of the CLI's own requests (routing, summaries) does
    not change, unless the CLI sends them to `model`.
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
        # For a model that it does not know, the CLI would send no thinking configuration.
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
