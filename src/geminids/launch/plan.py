"""Plans: everything needed to start a run or a warm process, as plain values."""

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
from geminids.launch.workspace import WorkspaceItem

__all__ = ["Plan", "WarmPlan", "Writes"]


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """What `write` creates before the CLI starts."""

    places: Places
    home: PrivateHome
    cwd: str | None = None
    """The working folder, if `write` should create it."""
    telemetry: str | None = None
    staged: StagedFiles | None = None
    preload: bool = False
    """Whether `argv` makes Node load our preload file before the CLI."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a headless run. `secrets` are values that must never be shown."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: bytes
    prompt: str
    """The caller's prompt, without template, instructions and files."""
    session_id: str | None
    gemini: Gemini
    auth: Auth
    route: Route
    secrets: frozenset[str]
    verdicts: Verdicts
    writes: Writes
    resumed: Path | None = None
    """The file of the resumed session, if it is known."""
    neutralised: tuple[WorkspaceItem, ...] = ()
    """Items of the folder that the run ignores."""


Key = tuple[tuple[str, ...], frozenset[tuple[str, str]]]


class WarmPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of an ACP process (`argv`, `env`) and of a session in it (`cwd`, `mode`, `model`)."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    mode: str
    """The session's mode.

    For `auto_edit` it is `default` with extra rules, because `autoEdit` never asks.
    """
    model: str | None
    gemini: Gemini
    auth: Auth
    route: Route
    secrets: frozenset[str]
    verdicts: Verdicts
    writes: Writes
    neutralised: tuple[WorkspaceItem, ...] = ()

    @property
    def signs_in_sessions(self) -> bool:
        """Whether each session has its own token instead of the key."""
        return self.route.signs_in_by_session

    @property
    def key(self) -> Key:
        """Identifies the process. Sessions with the same key can share a process."""
        return (self.argv, frozenset(self.env.items()))
