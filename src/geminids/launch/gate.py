"""The border between a plan and the gateway: what is asked for while a plan is made, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from geminids.launch import environment
from geminids.launch.auth import Auth
from geminids.options import Options
from geminids.toolchain.releases import Release

__all__ = ["STAND_IN", "Gate", "Given", "StandInGate", "with_stand_in"]

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
        return Given(dict(env))
