"""Build the environment of a CLI that uses the gateway.

The run's token replaces credentials, and loopback bypasses proxies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from geminids.gateway.route import Route

__all__ = ["NO_KEY", "PLACEHOLDER", "Endpoint", "bypass_proxies", "gateway_environment"]

NO_KEY = "geminids-holds-the-key"
"""The value of the key variable in processes where each session gets its own token.

It authorizes nothing.
"""

_LOOPBACK = ("127.0.0.1", "localhost")
_SHORTEST = 8
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
# Variables that choose a sign-in, hold a key or name the address of an API. A run gets only those
# it needs.
_SIGN_IN = (
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL",
)
# Variables with the machine's Google credentials. The gateway uses them; the CLI and its tools do
# not need them.
_MACHINE_CREDENTIALS = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_ACCESS_TOKEN",
    "CLOUDSDK_AUTH_ACCESS_TOKEN",
)


class Endpoint(msgspec.Struct, frozen=True):
    """The gateway's address, the token of the run, and `variables` for the tools of the run.

    `key` is the API key, if the gateway read it itself (`key_from`).
    """

    url: str
    token: str
    variables: dict[str, str] = {}
    key: str | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"


PLACEHOLDER = Endpoint("http://127.0.0.1:<port>", NO_KEY)
"""For plans that are only shown or checked."""


def gateway_environment(
    env: Mapping[str, str], route: Route, endpoint: Endpoint, *, blank: bool = False
) -> dict[str, str]:
    """Add the gateway's address and the run's token to `env`, and remove real keys.

    `blank`: set removed variables to "", because the CLI takes unset ones from a trusted folder's
    `.env`.

    >>> key = Route(kind="gateway", sign_in="api_key", key="AIza-k3y")
    >>> gateway_environment({"GEMINI_API_KEY": "AIza-k3y", "COPY": "--key=AIza-k3y"}, key, Endpoint("http://x", "t"))
    {'GEMINI_API_KEY': 't', 'GOOGLE_GEMINI_BASE_URL': 'http://x'}
    """
    ours = {**_variables(route, endpoint), **endpoint.variables}
    if route.api == "code_assist":
        removed: tuple[str, ...] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    elif route.api == "vertex":
        removed = (*_SIGN_IN, *_MACHINE_CREDENTIALS)
    else:
        removed = _SIGN_IN
    key = endpoint.key or route.key
    kept = {
        name: value
        for name, value in env.items()
        if name not in removed and not (key and (_holds(value, key) or _holds(name, key)))
    }
    return {**kept, **(dict.fromkeys(removed, "") if blank else {}), **ours}


def _variables(route: Route, endpoint: Endpoint) -> dict[str, str]:
    """Return the variables that make the CLI use the gateway, for the API of the route."""
    if route.api == "code_assist":
        endpoint_url = {"CODE_ASSIST_ENDPOINT": f"{endpoint.url}/{endpoint.token}"}
        if route.sign_in == "account":
            return endpoint_url
        # In a replay, the CLI must not look for a login.
        return {**endpoint_url, "GOOGLE_GENAI_USE_GCA": "true", "GOOGLE_CLOUD_ACCESS_TOKEN": NO_KEY}
    if route.api == "vertex":
        return {
            "GOOGLE_GENAI_USE_VERTEXAI": "true",
            "GOOGLE_API_KEY": endpoint.token,
            "GOOGLE_VERTEX_BASE_URL": endpoint.url,
        }
    return {"GEMINI_API_KEY": endpoint.token, "GOOGLE_GEMINI_BASE_URL": endpoint.url}


def _holds(text: str, key: str) -> bool:
    """Whether `text` contains the key.

    A key of a few letters must be equal: it could be part of PATH by chance.
    """
    return text == key or (len(key) >= _SHORTEST and key in text)


def bypass_proxies(env: Mapping[str, str]) -> dict[str, str]:
    """Exclude loopback from the proxies, for the CLI's requests to the gateway.

    Tools still use the proxies.
    """
    if not any(env.get(name) for name in _PROXIES):
        return dict(env)
    # The CLI prefers NO_PROXY (even an empty one) to no_proxy; other programs prefer no_proxy.
    upper, lower = env.get("NO_PROXY"), env.get("no_proxy")
    for_cli = upper if upper is not None else lower or ""
    for_others = lower if lower is not None else upper or ""
    return {**env, "NO_PROXY": _with_loopback(for_cli), "no_proxy": _with_loopback(for_others)}


def _with_loopback(listed: str) -> str:
    names = [name for name in re.split(r"[,\s]+", listed) if name]
    if "*" in names:
        return "*"
    return ",".join([*names, *(name for name in _LOOPBACK if name not in names)])
