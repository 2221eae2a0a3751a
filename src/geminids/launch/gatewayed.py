"""The environment of a CLI behind the gateway: the run's token in place of the key, and no proxy on the way to us."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["gatewayed_environment", "past_proxies"]

_LOOPBACK = ("127.0.0.1", "localhost")
_SHORTEST = 8
# In the order in which the CLI looks (config.ts); it takes the first for http and https alike.
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
# curl, git, pip and their kin fall back to it; the CLI does not know it.
_FALLBACK = ("ALL_PROXY", "all_proxy")


def gatewayed_environment(env: Mapping[str, str], key: str | None, url: str, token: str) -> dict[str, str]:
    """The environment with the gateway's address and token, and without any variable that holds the real key.

    GOOGLE_API_KEY goes in any case: it is Vertex's and would be of no use here, but to a thief.

    >>> gatewayed_environment({"GEMINI_API_KEY": "AIza-k3y", "COPY": "--key=AIza-k3y"}, "AIza-k3y", "http://x", "t")
    {'GEMINI_API_KEY': 't', 'GOOGLE_GEMINI_BASE_URL': 'http://x'}
    """
    kept = {
        name: value
        for name, value in env.items()
        if name != "GOOGLE_API_KEY" and not (key and (_holds(value, key) or _holds(name, key)))
    }
    return {**kept, "GEMINI_API_KEY": token, "GOOGLE_GEMINI_BASE_URL": url}


def _holds(text: str, key: str) -> bool:
    """A key of a few letters is one of a test server's: it would be found in PATH, too, and nobody looks for it."""
    return text == key or (len(key) >= _SHORTEST and key in text)


def past_proxies(env: Mapping[str, str], honours_no_proxy: bool) -> dict[str, str]:
    """The environment in which the CLI speaks to loopback itself, and its tools still find the proxy.

    A release that does not honour NO_PROXY sends everything to the proxy that it knows of, which cannot reach our
    loopback. Such a one must not know any: the proxy is named to the shell's programs by ALL_PROXY alone, and
    what the CLI fetches by itself (`web_fetch` where the API does not) goes out without it.
    """
    proxy = next((env[name] for name in _PROXIES if env.get(name)), None)
    if proxy is None:
        return dict(env)
    if honours_no_proxy:
        # The CLI takes NO_PROXY, even where it is empty, and else no_proxy; other programs the other way round.
        upper, lower = env.get("NO_PROXY"), env.get("no_proxy")
        for_cli = upper if upper is not None else lower or ""
        for_others = lower if lower is not None else upper or ""
        return {**env, "NO_PROXY": _with_loopback(for_cli), "no_proxy": _with_loopback(for_others)}
    kept = {name: value for name, value in env.items() if name not in _PROXIES}
    return {**dict.fromkeys(_FALLBACK, proxy), **kept}


def _with_loopback(listed: str) -> str:
    names = [name for name in re.split(r"[,\s]+", listed) if name]
    if "*" in names:
        return "*"
    return ",".join([*names, *(name for name in _LOOPBACK if name not in names)])
