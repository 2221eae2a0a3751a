"""Build the environment of a CLI process that sends its requests to the gateway.

The gateway is a local server. The CLI gets a token for the gateway and no real API key. Its
requests to the gateway do not go through a proxy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from geminids.gateway.route import Route

__all__ = ["NO_KEY", "PLACEHOLDER", "Endpoint", "bypass_proxies", "gateway_environment"]

NO_KEY = "geminids-holds-the-key"
"""The value of the API key variable in a process where each session gets its own token.

No API accepts this value.
"""

_LOOPBACK = ("127.0.0.1", "localhost")
_SHORTEST = 8
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
# Variables that choose a sign-in, contain a key or set the address of an API. Remove them all;
# `_variables` then sets those that the run needs.
_SIGN_IN = (
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL",
)
# Variables with the machine's Google credentials. Only the gateway uses these credentials. The CLI
# and its tools do not need them.
_MACHINE_CREDENTIALS = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_ACCESS_TOKEN",
    "CLOUDSDK_AUTH_ACCESS_TOKEN",
)


class Endpoint(msgspec.Struct, frozen=True):
    """The gateway's address and the token with which a run signs in to the gateway.

    `variables` are further environment variables for the tools of the run. `key` is the real API
    key if the gateway read it from the place that the option `key_from` names; otherwise None.
    """

    url: str
    token: str
    variables: dict[str, str] = {}
    key: str | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"


PLACEHOLDER = Endpoint("http://127.0.0.1:<port>", NO_KEY)
"""The endpoint of plans that are only shown or checked: no gateway runs."""


def gateway_environment(
    env: Mapping[str, str], route: Route, endpoint: Endpoint, *, blank: bool = False
) -> dict[str, str]:
    """Return `env` with the gateway's address and the run's token, and without real keys.

    The variables of the sign-in are removed. Every other variable that contains the real key, such
    as `COPY` in the example, is removed too.

    If `blank` is True, the variables of the sign-in are set to "" instead. This is for a trusted
    folder, where the CLI would read a missing variable from the folder's `.env`.

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
    """Return the variables that make the CLI send its requests to the gateway."""
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
    """Whether `text` contains `key`.

    A short key could by chance be a part of another value, such as the value of PATH. So for a key
    of less than 8 characters, the result is True only if `text` is equal to the key.
    """
    return text == key or (len(key) >= _SHORTEST and key in text)


def bypass_proxies(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with variables that make the CLI reach the gateway without a proxy.

    The names `127.0.0.1` and `localhost` are added to the lists in `NO_PROXY` and `no_proxy`. For
    all other addresses, the CLI and its tools still use the proxies. If `env` sets no proxy, the
    result is equal to `env`.
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
