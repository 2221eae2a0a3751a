"""A workspace without power: how each release is brought to pass over what lies in the folder.

From 0.39.1 on the CLI loads its settings before it parses its flags. A folder that no setting and no variable calls
trusted is then untrusted while settings and `.env` are read, and trusted, by `--skip-trust`, for all that follows:
nothing of the repository's settings is ever read, and approval modes, MCP servers of the user's and GEMINI.md work.
Its `.env` is looked for a second time, with the folder trusted (cli/src/config/auth.ts, validateAuthMethod): what a
setting does not keep out (`.gemini/.env` never, `.env` from 0.61 on), variables that are there already do.

Older releases trust every folder when headless. There our settings go in as system settings, which outrank a
workspace's; what cannot be outranked is a reason to refuse the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from geminids.launch.settings import Settings, merge
from geminids.launch.workspace import Workspace, WorkspaceProblem
from geminids.toolchain import Release

__all__ = ["Distrust", "distrust"]

# What an untrusted `.env` may still set (settings.ts, AUTH_ENV_VAR_WHITELIST).
_STILL_READ = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
_TRUSTING = ("GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_CLI_TRUSTED_FOLDERS_PATH")

# Settings that give nothing, or only take away.
_HARMLESS = (
    "ui.",
    "output.",
    "privacy.",
    "general.vimMode",
    "general.preferredEditor",
    "general.disableAutoUpdate",
    "general.disableUpdateNag",
    "general.enablePromptCompletion",
    "general.checkpointing.",
    "tools.exclude",
    "tools.useRipgrep",
    "mcp.excluded",
    "skills.disabled",
    "security.disableYoloMode",
    "context.fileFiltering.respect",
    "context.discoveryMaxDirs",
)
# Settings that are set back to what they are without the repository, unless the user has a value.
_SET_BACK: dict[str, Any] = {
    "tools.allowed": [],
    "tools.autoAccept": False,
    "tools.discoveryCommand": "",
    "tools.callCommand": "",
    "tools.sandbox": False,
    "tools.enableHooks": False,
    "mcp.serverCommand": "",
    "mcp.allowed": [],
    "model.maxSessionTurns": -1,
    "context.fileName": "GEMINI.md",
    "ide.enabled": False,
    "security.folderTrust.enabled": False,
    "telemetry.enabled": False,
    "hooksConfig.enabled": False,
    "hooks.enabled": False,
    "experimental.enableAgents": False,
    "experimental.skills": False,
    "general.maxAttempts": 10,
}
_TRUST = "Trust it with trust_workspace, use Gemini CLI 0.39.1 or newer, or take it out of the file."


class Distrust(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan has to do about a workspace: settings over ours, variables to drop or to set, flags."""

    settings: Settings = {}
    system: bool = False
    """Whether the settings have to go in as system settings, to outrank the workspace's."""
    drop: tuple[str, ...] = ()
    env: dict[str, str] = {}
    flags: tuple[str, ...] = ()


def distrust(workspace: Workspace, release: Release, users: Settings, environ: Mapping[str, str]) -> Distrust:
    """How to run in this folder with nothing of it having power; raises `WorkspaceProblem` where that cannot be.

    `users` are the settings that shall hold: the user's own, with those of this run over them.
    """
    if environ.get("CLOUD_SHELL") == "true" and "GOOGLE_CLOUD_PROJECT" in workspace.env_names:
        # There, and for this name alone, the file beats the environment (settings.ts, setUpCloudShellEnvironment).
        raise WorkspaceProblem(
            "a .env of the repository names a GOOGLE_CLOUD_PROJECT, which Gemini CLI follows in Cloud Shell",
            "Trust the folder with trust_workspace, or take it out of the file.",
        )
    if release.skip_trust_flag:
        return _unread(workspace, release, users, environ)
    return _outranked(workspace, users, environ)


def _unread(workspace: Workspace, release: Release, users: Settings, environ: Mapping[str, str]) -> Distrust:
    settings: Settings = {
        # Off, it would make every folder a trusted one.
        "security": {"folderTrust": {"enabled": True}},
        "advanced": {"ignoreLocalEnv": True},
    }
    if workspace.skills:
        settings["skills"] = {"disabled": [*_list(users, "skills.disabled"), *workspace.skills]}
    names = workspace.env_names
    if release.ignores_local_env and _value(workspace.settings, "advanced.ignoreLocalEnv") is None:
        # No more than needed: a program that reads its own `.env` takes what is there, be it empty, for an answer.
        # (Settings are cached for 10 s: after a slower start, the repository's would count at the second look.)
        names = (*workspace.gemini_env_names, *(name for name in names if name in _STILL_READ))
    return Distrust(settings=settings, drop=_TRUSTING, env=_blank(names, environ), flags=("--skip-trust",))


def _outranked(workspace: Workspace, users: Settings, environ: Mapping[str, str]) -> Distrust:
    settings: Settings = {}
    for found in workspace.found:
        if found.kind == "setting" and not found.name.startswith(_HARMLESS):
            settings = merge(settings, _set_back(found.name, users))
    settings = merge(settings, _without_hooks(workspace, users))
    settings = merge(settings, _without_servers(workspace, users))
    if workspace.skills:
        settings = merge(settings, {"skills": {"disabled": list(workspace.skills)}})
    if workspace.agents:
        settings = merge(settings, {"experimental": {"enableAgents": False}})
    env = _blank(workspace.env_names, environ)
    return Distrust(settings=settings, system=bool(settings), drop=("GEMINI_CLI_TRUST_WORKSPACE",), env=env)


def _set_back(path: str, users: Settings) -> Settings:
    if path.startswith("telemetry.") and not _value(users, "telemetry.enabled"):
        path = "telemetry.enabled"
    if path not in _SET_BACK:
        raise WorkspaceProblem(
            f"the repository's .gemini/settings.json sets {path}, which this release would follow", _TRUST
        )
    theirs = _value(users, path)
    value = _SET_BACK[path] if theirs is None else theirs
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def _without_hooks(workspace: Workspace, users: Settings) -> Settings:
    """Lists of hooks are joined, not replaced: each has to be disabled by name."""
    if not workspace.hooks:
        return {}
    own = {hook.name for hook in Workspace(cwd=workspace.cwd, settings=users).hooks}
    names = sorted({hook.name for hook in workspace.hooks})
    if "" in names or own & set(names):
        raise WorkspaceProblem(
            "the repository's .gemini/settings.json has a hook that cannot be told from one of yours", _TRUST
        )
    # `hooks.disabled` to 0.24, `hooksConfig.disabled` after it.
    return {"hooks": {"disabled": names}, "hooksConfig": {"disabled": names}}


def _without_servers(workspace: Workspace, users: Settings) -> Settings:
    if not workspace.servers:
        return {}
    own = users.get("mcpServers")
    own = own if isinstance(own, dict) else {}
    kept = {name: own[name] for name in workspace.servers if name in own}
    strangers = [name for name in workspace.servers if name not in own]
    return {
        **({"mcpServers": kept} if kept else {}),
        **({"mcp": {"excluded": [*_list(users, "mcp.excluded"), *strangers]}} if strangers else {}),
    }


def _blank(names: Any, environ: Mapping[str, str]) -> dict[str, str]:
    """A variable that is there, be it empty, is never overwritten by a `.env`."""
    return {name: "" for name in names if name not in environ}


def _value(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(settings: Settings, path: str) -> list[Any]:
    value = _value(settings, path)
    return list(value) if isinstance(value, list) else []
