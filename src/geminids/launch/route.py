"""Decide how the requests of a run reach the API: through the gateway, directly, or not at all.

The functions do no input or output. Runs, `--dry-run` and `geminids doctor` all use them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Literal

from geminids.gateway.route import Route
from geminids.launch.auth import ResolvedAuth
from geminids.launch.gateway_env import NO_KEY
from geminids.options import Options
from geminids.options.validate import LIMITS, NEED_GATEWAY

__all__ = ["decide_route", "needs_gateway", "route_notice", "route_text", "uses_container"]

_OFF = "`gateway='off'`"
_SIMULATED = ("offline", "script", "replay")
_CONTAINER = "the CLI runs in a container (`tools.sandbox`) and cannot reach the gateway on this machine"
_CONTAINER_HINT = "Turn `tools.sandbox` off, or run without this option."
_SET_KEY = (
    "Set GEMINI_API_KEY, or set `key_from` to the place of the key. To run without a key, use `offline=True`."
)


def decide_route(options: Options, resolved: ResolvedAuth, *, budget: bool = False) -> Route:
    """Decide how the requests of a run reach the API.

    `budget` is True if the run shares a budget with other runs. Such a run needs the gateway.
    """
    auth, env = resolved.auth, resolved.env
    in_container = uses_container(resolved.settings, env)
    simulated = next((name for name in _SIMULATED if getattr(options, name)), None)
    if simulated is not None:
        if in_container:
            return _refused(simulated, _CONTAINER, _CONTAINER_HINT)
        return Route(kind="gateway", api=resolved.api)
    needed = needs_gateway(options, budget=budget)
    if options.gateway == "off":
        if needed is not None:
            return _refused(
                needed,
                f"the gateway is turned off ({_OFF})",
                "Use `gateway='on'`, or run without this option.",
            )
        return Route(kind="direct", reason=_OFF, is_expected=True)
    if in_container:
        return _direct(needed, _CONTAINER, _CONTAINER_HINT)
    if auth.mode == "key":
        return _by_key(options, env, needed)
    if auth.mode == "vertex":
        return _by_vertex(env)
    if auth.mode in ("account", "adc"):
        return Route(
            kind="gateway",
            sign_in="account",
            api="code_assist",
            base_url=env.get("CODE_ASSIST_ENDPOINT") or None,
        )
    if auth.mode == "none":
        # No warning: the CLI itself reports that it has no sign-in, or asks the user to sign in.
        return _direct(needed, "no sign-in was found", _SET_KEY, is_expected=True)
    return _direct(needed, f"geminids does not support this sign-in ({auth.source})", _SET_KEY)


def needs_gateway(options: Options, *, budget: bool = False) -> str | None:
    """Return the name of the first option that needs the gateway; None if no option needs it.

    `budget` is True if the run shares a budget with other runs. The result is then "budget".
    """
    if budget:
        return "budget"
    return next((name for name in (*LIMITS, *NEED_GATEWAY) if getattr(options, name)), None)


def uses_container(settings: Mapping[str, Any], env: Mapping[str, str]) -> bool:
    """Whether the CLI will start itself in a container (sandboxConfig.ts).

    In the example, docker is a container, but the macOS program sandbox-exec is not.

    >>> uses_container({"tools": {"sandbox": "docker"}}, {}), uses_container({}, {"GEMINI_SANDBOX": "sandbox-exec"})
    (True, False)
    """
    if env.get("SANDBOX"):
        return False  # the CLI already runs in a container
    tools = settings.get("tools")
    value: Any = tools.get("sandbox") if isinstance(tools, dict) else None
    if isinstance(value, dict):
        value = value.get("command") or value.get("enabled")
    value = env.get("GEMINI_SANDBOX") or value
    name = str(value).strip().lower() if value is not None else "false"
    if name in ("true", "1"):
        return sys.platform != "darwin"
    return name not in ("", "false", "0", "none", "sandbox-exec", "windows-native")


def _by_key(options: Options, env: Mapping[str, str], needed: str | None) -> Route:
    # Ignore spaces around a key: they are typing errors.
    key = env.get("GEMINI_API_KEY", "").strip() or None
    if key == NO_KEY and options.key_from is None:
        return Route(
            kind="refused",
            reason="a tool of a warm chat started this run, and the tools of a warm chat get no API key",
            hint="Set `key_from` to the place of a key, or use headless runs instead of the warm chat.",
            failure="auth",
        )
    if key is None and options.key_from is None:
        return _direct(needed, "the API key is in the CLI's own store, which only the CLI can read", _SET_KEY)
    # If the key is our placeholder, a tool of another chat started this run, and the base URL is
    # the address of that chat's gateway. That gateway accepts only its own tokens.
    base_url = None if key == NO_KEY else env.get("GOOGLE_GEMINI_BASE_URL")
    return Route(
        kind="gateway",
        sign_in="api_key",
        base_url=base_url or None,
        key=None if options.key_from is not None else key,
    )


def _by_vertex(env: Mapping[str, str]) -> Route:
    base_url = env.get("GOOGLE_VERTEX_BASE_URL") or None
    key = env.get("GOOGLE_API_KEY", "").strip()
    if key:
        return Route(kind="gateway", sign_in="vertex_key", api="vertex", base_url=base_url, key=key)
    project = env.get("GOOGLE_CLOUD_PROJECT") or env.get("GOOGLE_CLOUD_PROJECT_ID") or ""
    location = env.get("GOOGLE_CLOUD_LOCATION") or ""
    if not project or not location:
        return Route(
            kind="refused",
            reason="Vertex AI needs GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION, or GOOGLE_API_KEY",
            hint="Set these variables in the environment, or use GEMINI_API_KEY.",
            failure="auth",
        )
    return Route(
        kind="gateway",
        sign_in="vertex_credentials",
        api="vertex",
        base_url=base_url,
        project=project,
        location=location,
    )


def _direct(needed: str | None, reason: str, hint: str, *, is_expected: bool = False) -> Route:
    if needed is not None:
        return _refused(needed, reason, hint)
    return Route(kind="direct", reason=reason, is_expected=is_expected)


def _refused(needed: str, reason: str, hint: str) -> Route:
    return Route(kind="refused", reason=f"`{needed}` needs the gateway, but {reason}", hint=hint)


_SIGN_INS = {
    "none": "no real API",
    "api_key": "Gemini API with a key",
    "vertex_key": "Vertex AI with a key",
    "vertex_credentials": "Vertex AI with this machine's credentials",
    "account": "Google account; its login stays with the CLI",
}


def route_text(route: Route) -> str:
    """Describe the route in one line.

    >>> route_text(Route(kind="gateway", sign_in="api_key"))
    'gateway: Gemini API with a key'
    """
    if route.kind != "gateway":
        return f"{route.kind}: {route.reason}"
    upstream = f", upstream {_shown_url(route.base_url)}" if route.base_url else ""
    return f"gateway: {_SIGN_INS[route.sign_in]}{upstream}"


def _shown_url(url: str) -> str:
    """Return the URL with its user name and password masked."""
    return re.sub(r"//[^/@]*@", "//***@", url)


def route_notice(route: Route) -> tuple[Literal["info", "warning"], str, str] | None:
    """Return the level, the code and the text of the notice about the route.

    Return None if the route needs no notice.
    """
    if route.kind == "direct" and not route.is_expected:
        effect = "the cost is an estimate, and tools can read the credentials"
        text = f"requests bypass the gateway: {route.reason}; {effect}"
        return "warning", "gateway", text
    if route.sign_in == "account":
        text = "the gateway counts and limits requests, but the CLI keeps the account login, and tools can read it"
        return "info", "gateway", text
    return None
