"""The environment of a CLI behind the gateway: the run's token in place of every credential, no proxy on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from geminids.gateway.route import Route

__all__ = ["NO_KEY", "PLACEHOLDER", "Endpoint", "gateway_environment", "past_proxies"]

NO_KEY = "geminids-holds-the-key"
"""The value of the key variable in processes whose sessions get their tokens one by one. It authorizes nothing."""

_LOOPBACK = ("127.0.0.1", "localhost")
_SHORTEST = 8
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
# Whatever chooses a sign-in, holds a key, or leads to an API. Each run gets those it needs and no other.
_SIGN_IN = (
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL",
)
# What leads to the machine's Google credentials. The gateway uses them; the CLI and its tools do not need them.
_MACHINE_CREDENTIALS = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_ACCESS_TOKEN",
    "CLOUDSDK_AUTH_ACCESS_TOKEN",
)


class Endpoint(msgspec.Struct, frozen=True):
    """Where the CLI finds the gateway, the token that identifies its run there, and `variables` for its tools.

    `key` is what the gateway signs in with, if it read the key itself (`key_from`).
    """

    url: str
    token: str
    variables: dict[str, str] = {}
    key: str | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"


PLACEHOLDER = Endpoint("http://127.0.0.1:<port>", NO_KEY)
"""For plans that are shown or checked and never carried out."""


def gateway_environment(
    env: Mapping[str, str], route: Route, endpoint: Endpoint, *, blank: bool = False
) -> dict[str, str]:
    """`env` with the gateway's address and the run's token, and without any variable that holds a real key.

    `blank`: set what is removed to nothing, because the CLI reads a trusted folder's `.env` for unset names.

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
    """What leads the CLI to the gateway, in the form of the API that it speaks."""
    if route.api == "code_assist":
        endpoint_url = {"CODE_ASSIST_ENDPOINT": f"{endpoint.url}/{endpoint.token}"}
        if route.sign_in == "account":
            return endpoint_url
        # A replay: the CLI must not look for a login.
        return {**endpoint_url, "GOOGLE_GENAI_USE_GCA": "true", "GOOGLE_CLOUD_ACCESS_TOKEN": NO_KEY}
    if route.api == "vertex":
        return {
            "GOOGLE_GENAI_USE_VERTEXAI": "true",
            "GOOGLE_API_KEY": endpoint.token,
            "GOOGLE_VERTEX_BASE_URL": endpoint.url,
        }
    return {"GEMINI_API_KEY": endpoint.token, "GOOGLE_GEMINI_BASE_URL": endpoint.url}


def _holds(text: str, key: str) -> bool:
    """A key of a few letters belongs to a test server. It would also be found in PATH, so it is not searched for."""
    return text == key or (len(key) >= _SHORTEST and key in text)


def past_proxies(env: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the CLI reaches loopback without a proxy, while its tools still find the proxy."""
    if not any(env.get(name) for name in _PROXIES):
        return dict(env)
    # The CLI takes NO_PROXY, even an empty one, and else no_proxy; other programs the other way round.
    upper, lower = env.get("NO_PROXY"), env.get("no_proxy")
    for_cli = upper if upper is not None else lower or ""
    for_others = lower if lower is not None else upper or ""
    return {**env, "NO_PROXY": _with_loopback(for_cli), "no_proxy": _with_loopback(for_others)}


def _with_loopback(listed: str) -> str:
    names = [name for name in re.split(r"[,\s]+", listed) if name]
    if "*" in names:
        return "*"
    return ",".join([*names, *(name for name in _LOOPBACK if name not in names)])
