"""Choose how a run signs in to the API, for example with a key or a Google account.

A run has no terminal, so the sign-in must work without one. This module reads files, but writes
none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from geminids.gateway.request import Api
from geminids.gemini.settings_file import Settings, SettingsProblem, merge, read_settings
from geminids.launch.environment import read_dotenv
from geminids.launch.home import SourceHome, regular_text
from geminids.options import Options

__all__ = ["Auth", "AuthMode", "ResolvedAuth", "choose_auth", "nearest_dotenv", "resolve_auth"]

AuthMode = Literal["key", "vertex", "account", "adc", "other", "none"]


class Auth(msgspec.Struct, frozen=True):
    """A way to sign in to the API.

    `source` names the variable, file or setting that selects this way; it is used in messages.
    `selected_type` is the new value of the CLI's setting `security.auth.selectedType`. If it is
    None, that setting is not changed.
    """

    mode: AuthMode
    source: str
    selected_type: str | None = None


_MODES: dict[str, AuthMode] = {
    "gemini-api-key": "key",
    "vertex-ai": "vertex",
    "oauth-personal": "account",
    "login-with-google": "account",
    "cloud-shell": "adc",
    "compute-default-credentials": "adc",
}
# Prefixes of the variables in a `.env` file that decide how requests reach the API.
_ROUTING = (
    "CODE_ASSIST_",
    "GEMINI_API_KEY",
    "GEMINI_SANDBOX",
    "GOOGLE_",
    "HTTP",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
)
_SELECTED_TYPES: dict[Api, str] = {
    "gemini": "gemini-api-key",
    "vertex": "vertex-ai",
    "code_assist": "oauth-personal",
}


class ResolvedAuth(msgspec.Struct, frozen=True, kw_only=True):
    """The sign-in of a run, with the values that decide how its requests reach the API.

    `env` and `settings` are the variables and settings that the CLI will use. `api` is the API that
    the run calls; if a run replays recorded requests, `api` is the API of the recording.
    """

    auth: Auth
    env: dict[str, str]
    settings: Settings
    api: Api = "gemini"


def resolve_auth(
    options: Options,
    env: Mapping[str, str],
    source: SourceHome,
    cwd: str | os.PathLike[str],
) -> ResolvedAuth:
    """Find out how a run signs in to the API. `source` is the home whose settings the run uses.

    The `env` of the result contains the parameter `env` and the variables of the user's `.env`
    file. If `options.trust_workspace` is set, the result also contains the sign-in and proxy
    variables of the workspace's `.env` file. A variable of the parameter `env` overrides the same
    variable of a file.
    """
    file, variables = nearest_dotenv(Path(cwd), source.path, trusted=False)
    only = options.env_only
    variables = {name: value for name, value in variables.items() if only is None or name in only}
    files = [(file, variables)]
    settings = source.settings
    workspace_type = None
    if options.trust_workspace:
        file, variables = nearest_dotenv(Path(cwd), source.path, trusted=True)
        files.append(
            (file, {name: value for name, value in variables.items() if name.upper().startswith(_ROUTING)})
        )
        folder_settings = _folder_settings(cwd)
        settings, workspace_type = merge(settings, folder_settings), _selected_type(folder_settings)
    api: Api = "gemini"
    merged = {name: value for _, variables in files for name, value in variables.items()} | dict(env)
    if options.replay is not None:
        # Imported late: it loads OpenSSL (hashlib), which would delay every run.
        from geminids.gateway.cassette.cassette import cassette_api

        api = cassette_api(options.replay)
        auth = Auth("none", "replay", _SELECTED_TYPES[api])
    elif options.is_simulated:
        auth = Auth("none", "script" if options.script is not None else "offline", _SELECTED_TYPES[api])
    elif options.key_from is not None:
        auth = Auth("key", "key_from", _SELECTED_TYPES[api])
    else:
        auth = choose_auth(merged, source.settings, workspace_type)
        file = next((file for file, variables in reversed(files) if auth.source in variables), None)
        if file is not None and not env.get(auth.source):
            auth = msgspec.structs.replace(auth, source=f"{auth.source} in {file}")
    return ResolvedAuth(auth=auth, env=merged, settings=settings, api=api)


def nearest_dotenv(cwd: Path, home: Path, *, trusted: bool) -> tuple[Path | None, dict[str, str]]:
    """Return the path of the `.env` file that the CLI reads, and the variables in this file.

    If `trusted`, search `cwd`, the folders above it and `home`, as the CLI does (settings.ts,
    findEnvFile); otherwise search only `home`. The result is `(None, {})` if there is no file.
    """
    folders = (cwd, *cwd.parents, home) if trusted else (home,)
    for file in (folder / name for folder in folders for name in (".gemini/.env", ".env")):
        text = regular_text(file)
        if text is not None:
            return file, read_dotenv(text)
    return None, {}


def _folder_settings(cwd: str | os.PathLike[str]) -> Settings:
    file = Path(cwd, ".gemini", "settings.json")
    try:
        return read_settings(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError, SettingsProblem):
        return {}  # the CLI cannot read this file either


def choose_auth(
    environ: Mapping[str, str], user_settings: Mapping[str, Any], workspace_type: str | None = None
) -> Auth:
    """Choose the sign-in of a run.

    The first of these that selects a sign-in decides:

    1. `workspace_type`: the sign-in that the settings of a trusted folder select, or None. The CLI
       prefers these settings to all others.
    2. Environment variables for an account, for Vertex AI or for a key, in this order.
    3. The user's settings.
    4. Environment variables for the credentials of a machine.

    The CLI itself prefers the user's settings to the environment. We prefer the environment,
    because a variable in it was set for this process.

    If the environment selects an account, Vertex AI or a key, the result has a `selected_type`. The
    CLI needs this setting: without it, the CLI exits with code 41 if GOOGLE_GEMINI_BASE_URL is set,
    even if there is a key (validateNonInterActiveAuth.ts of Gemini CLI).
    """
    if workspace_type:
        return Auth(_MODES.get(workspace_type, "other"), "the folder's settings, security.auth.selectedType")
    if environ.get("GOOGLE_GENAI_USE_GCA") == "true":
        return Auth("account", "GOOGLE_GENAI_USE_GCA", "oauth-personal")
    if environ.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return Auth("vertex", "GOOGLE_GENAI_USE_VERTEXAI", "vertex-ai")
    if environ.get("GEMINI_API_KEY"):
        return Auth("key", "GEMINI_API_KEY", "gemini-api-key")
    chosen = _selected_type(user_settings)
    if chosen:
        return Auth(_MODES.get(chosen, "other"), "settings security.auth.selectedType")
    if environ.get("CLOUD_SHELL") == "true" or environ.get("GEMINI_CLI_USE_COMPUTE_ADC") == "true":
        return Auth("adc", "CLOUD_SHELL or GEMINI_CLI_USE_COMPUTE_ADC")
    return Auth("none", "nothing found")


def _selected_type(settings: Mapping[str, Any]) -> str | None:
    """Return the value of `security.auth.selectedType`, or None if it is not set."""
    value: Any = settings
    for name in ("security", "auth", "selectedType"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
