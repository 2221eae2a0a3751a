"""Plans: everything that the start of a run or of a warm process needs, as plain values."""

from __future__ import annotations

from pathlib import Path

import msgspec

from geminids.config.paths import Places
from geminids.gateway.route import Route
from geminids.gemini import Gemini
from geminids.launch.auth import Auth
from geminids.launch.home import PrivateHome
from geminids.launch.permissions.verdicts import Verdicts
from geminids.launch.scratch import StagedFiles
from geminids.launch.workspace import Found

__all__ = ["Plan", "WarmPlan", "Writes"]


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """What `write` has to create before the CLI starts."""

    places: Places
    home: PrivateHome
    cwd: str | None = None
    """The working folder, if it has to be made."""
    telemetry: str | None = None
    staged: StagedFiles | None = None
    preload: bool = False
    """Whether `argv` names the file that Node loads before the CLI."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a headless run needs. `secrets` are the values that must never be shown."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: bytes
    prompt: str
    """The prompt of the caller, without template, instructions and files."""
    session_id: str | None
    gemini: Gemini
    auth: Auth
    route: Route
    secrets: frozenset[str]
    verdicts: Verdicts
    writes: Writes
    resumed: Path | None = None
    """The file of the session that is resumed, if it is known."""
    neutralised: tuple[Found, ...] = ()
    """What was found in the folder and is ignored."""


Key = tuple[tuple[str, ...], frozenset[tuple[str, str]]]


class WarmPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an ACP process needs (`argv`, `env`), and what a session in it needs (`cwd`, `mode`, `model`)."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    mode: str
    """The mode that a session is set to: for `auto_edit` it is `default` with rules, since `autoEdit` asks nobody."""
    model: str | None
    gemini: Gemini
    auth: Auth
    route: Route
    secrets: frozenset[str]
    verdicts: Verdicts
    writes: Writes
    neutralised: tuple[Found, ...] = ()

    @property
    def signs_in_sessions(self) -> bool:
        """Whether each session brings a token of its own in place of the key."""
        return self.route.signs_in_by_session

    @property
    def key(self) -> Key:
        """What a process fixes: sessions with the same key can share one."""
        return (self.argv, frozenset(self.env.items()))
