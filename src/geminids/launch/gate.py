"""The border between a plan and the gateway: what is asked for while a plan is made, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from geminids.launch import environment
from geminids.launch.auth import Auth
from geminids.launch.refused import Refused
from geminids.options import Options
from geminids.options.checks import LIMITS, NEED_GATEWAY
from geminids.toolchain.releases import Release

__all__ = [
    "STAND_IN",
    "Gate",
    "Given",
    "StandInGate",
    "asked_for",
    "is_risky",
    "keeps_journal",
    "kept_by_cli",
    "needs_gateway",
    "needs_journal",
    "needs_key",
    "with_stand_in",
]

# A key's place is held by this until the gateway has given its token; it is worth nothing anywhere.
STAND_IN = "geminids-holds-the-key"
_NOWHERE = "http://127.0.0.1:<port>"


class Given(msgspec.Struct, frozen=True):
    """The environment of the CLI as the gateway wants it; `secrets` must never be shown; `hides` where the key is
    to be out of reach, in files too; `gatewayed` where the CLI has to reach our own loopback."""

    env: dict[str, str]
    secrets: frozenset[str] = frozenset()
    hides: bool = False
    gatewayed: bool = False


class Gate(Protocol):
    """Asked once for each plan, when the sign-in is known; raises `Refused` where the gateway cannot be had."""

    def open(self, env: Mapping[str, str], auth: Auth, release: Release) -> Given: ...


def asked_for(options: Options) -> str | None:
    """The option that asks for the gateway, if there is one."""
    return needs_gateway(options) or next((name for name in LIMITS if getattr(options, name)), None)


def needs_gateway(options: Options) -> str | None:
    """The option that cannot be had without the gateway, if there is one."""
    if options.gateway == "on":
        return "gateway='on'"
    return next((name for name in NEED_GATEWAY if getattr(options, name)), None)


def is_risky(options: Options) -> bool:
    """Whether a stranger's repository could have the agent look for the key: it may run a shell there."""
    may = options.permissions
    runs = options.approval == "yolo" or may.shell in ("allow", "ask") or bool(may.allow_commands)
    return runs and may.shell != "deny" and not options.trust_workspace


def kept_by_cli(auth: Auth) -> str:
    """Why the gateway cannot sign in for this CLI."""
    if auth.mode == "key":
        return "the key is in the CLI's own store, where only the CLI can read it"
    return f"the sign-in ({auth.source}) stays with the CLI"


def needs_key(wanted: str, auth: Auth) -> Refused:
    """What was asked for cannot be had with this sign-in."""
    return Refused(
        "bad_option",
        f"{wanted} needs the gateway, and that needs an API key: {kept_by_cli(auth)}",
        "Set GEMINI_API_KEY, or name the key with key_from.",
    )


def needs_journal(why: str) -> Refused:
    """A budget without the gateway, on a release that does not write down its requests."""
    return Refused(
        "bad_option",
        f"a budget needs the gateway here ({why}): this release writes no journal to count requests by",
        "Let the gateway be on with an API key, or take Gemini CLI 0.39 or newer.",
    )


def keeps_journal(release: Release) -> bool:
    """Whether requests can be counted while the run goes on, without the gateway."""
    return release.session_storage == "slug_journal"


def with_stand_in(env: Mapping[str, str], options: Options) -> dict[str, str]:
    """An environment that signs in with a key which the gateway alone has: offline, replayed, or kept elsewhere."""
    if options.offline:
        return environment.offline_environment(env, {"GEMINI_API_KEY": STAND_IN})
    if options.replay is not None or options.key_from is not None:
        away = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA", "GOOGLE_API_KEY")
        kept = {name: value for name, value in env.items() if name not in away}
        return {**kept, "GEMINI_API_KEY": STAND_IN}
    return dict(env)


class StandInGate:
    """For plans that nobody carries out: it gives what the gateway would, and none is started."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def open(self, env: Mapping[str, str], auth: Auth, release: Release) -> Given:
        options = self._options
        if options.offline or options.replay is not None or options.key_from is not None:
            return Given({**env, "GOOGLE_GEMINI_BASE_URL": _NOWHERE}, hides=True)
        wanted, key = asked_for(options), env.get("GEMINI_API_KEY")
        if options.gateway == "off" and wanted and not keeps_journal(release):
            raise needs_journal("it is off")
        if options.gateway == "off" or not (wanted or is_risky(options)) or auth.mode == "none":
            return Given(dict(env))
        if auth.mode == "key" and key is not None:
            from geminids.launch.gatewayed import gatewayed_environment

            given = gatewayed_environment(env, key, _NOWHERE, STAND_IN)
            return Given(given, frozenset((key,)), hides=True, gatewayed=True)
        if needs := needs_gateway(options):
            raise needs_key(needs, auth)
        if wanted and not keeps_journal(release):
            raise needs_journal(kept_by_cli(auth))
        return Given(dict(env))
