"""A workspace without power: how the CLI is brought to pass over what lies in the folder.

The CLI loads its settings before it parses its flags. A folder that no setting and no variable calls
trusted is then untrusted while settings and `.env` are read, and trusted, by `--skip-trust`, for all that follows:
nothing of the repository's settings is ever read, and approval modes, MCP servers of the user's and GEMINI.md work.
Its `.env` is looked for a second time, with the folder trusted (cli/src/config/auth.ts, validateAuthMethod): what a
setting does not keep out (`.gemini/.env` never, `.env` from 0.61 on), variables that are there already do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from geminids.launch.settings import Settings
from geminids.launch.workspace import Workspace, WorkspaceProblem
from geminids.toolchain import Release

__all__ = ["Distrust", "distrust"]

# What an untrusted `.env` may still set (settings.ts, AUTH_ENV_VAR_WHITELIST).
_STILL_READ = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
_TRUSTING = ("GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_CLI_TRUSTED_FOLDERS_PATH")


class Distrust(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan has to do about a workspace: settings over ours, variables to drop or to set, flags."""

    settings: Settings = {}
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
