"""Find the sign-in of a run and the route of its requests to the API. Only reads files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from geminids.gateway.request import Api
from geminids.gateway.route import Route
from geminids.gemini.settings_file import SettingsProblem, merge, read_settings
from geminids.launch.auth import Auth, choose_auth, selected_type
from geminids.launch.environment import read_dotenv
from geminids.launch.home import SourceHome, regular_text
from geminids.launch.route import decide_route
from geminids.options import Options

__all__ = ["SignIn", "find_sign_in", "nearest_dotenv"]

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


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """How a run signs in (`auth`), its `route`, and the environment that both come from."""

    auth: Auth
    route: Route
    env: dict[str, str]


def find_sign_in(
    options: Options,
    env: Mapping[str, str],
    source: SourceHome,
    cwd: str | os.PathLike[str],
    *,
    budget: bool = False,
) -> SignIn:
    """Find the sign-in and route.

    Variables of the user's `.env`, and of a trusted folder's, are added to `env`.
    """
    file, variables = nearest_dotenv(Path(cwd), source.path, trusted=False)
    only = options.env_only
    variables = {name: value for name, value in variables.items() if only is None or name in only}
    files = [(file, variables)]
    settings: Mapping[str, Any] = source.settings
    workspace_type = None
    if options.trust_workspace:
        file, variables = nearest_dotenv(Path(cwd), source.path, trusted=True)
        files.append(
            (file, {name: value for name, value in variables.items() if name.upper().startswith(_ROUTING)})
        )
        folder_settings = _folder_settings(cwd)
        settings, workspace_type = merge(settings, folder_settings), selected_type(folder_settings)
    api: Api = "gemini"
    merged = {name: value for _, variables in files for name, value in variables.items()} | dict(env)
    if options.replay is not None:
        from geminids.gateway.cassette.cassette import cassette_api  # imported late: few runs are replays

        api = cassette_api(options.replay)
        auth = Auth("none", "replay", _SELECTED_TYPES[api])
    elif options.offline:
        auth = Auth("none", "offline", _SELECTED_TYPES[api])
    elif options.key_from is not None:
        auth = Auth("key", "key_from", _SELECTED_TYPES[api])
    else:
        auth = choose_auth(merged, source.settings, workspace_type)
        file = next((file for file, variables in reversed(files) if auth.source in variables), None)
        if file is not None and not env.get(auth.source):
            auth = msgspec.structs.replace(auth, source=f"{auth.source} in {file}")
    route = decide_route(options, merged, auth, settings, budget=budget, replayed=api)
    return SignIn(auth=auth, route=route, env=merged)


def nearest_dotenv(cwd: Path, home: Path, *, trusted: bool) -> tuple[Path | None, dict[str, str]]:
    """Return the `.env` file that the CLI reads (settings.ts, findEnvFile) and its variables.

    Files in the folder and above it count only if the folder is `trusted`.
    """
    folders = (cwd, *cwd.parents, home) if trusted else (home,)
    for file in (folder / name for folder in folders for name in (".gemini/.env", ".env")):
        text = regular_text(file)
        if text is not None:
            return file, read_dotenv(text)
    return None, {}


def _folder_settings(cwd: str | os.PathLike[str]) -> Mapping[str, Any]:
    file = Path(cwd, ".gemini", "settings.json")
    try:
        return read_settings(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError, SettingsProblem):
        return {}  # the CLI cannot read it either
