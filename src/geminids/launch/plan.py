"""Plans: plain values with everything that is needed to start a run or a warm process."""

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
    """The files and folders that `write` creates before the CLI starts.

    `home` is the private home. `telemetry` is the path of the telemetry file, or None. `staged` are
    the files of the prompt.
    """

    places: Places
    home: PrivateHome
    cwd: str | None = None
    """The working folder if it should be created; otherwise None."""
    telemetry: str | None = None
    staged: StagedFiles | None = None
    preload: bool = False
    """Whether `write` must create the script that Node loads before the CLI.

    `argv` contains the path of the script.
    """


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is needed to start a headless run.

    `secrets` are values that must never be shown.
    """

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
    """The file of the session that the run resumes; None for a new session or an unknown file."""
    neutralised: tuple[WorkspaceItem, ...] = ()
    """Items of the run's folder, such as hooks. They are ignored: the folder is not trusted."""


Key = tuple[tuple[str, ...], frozenset[tuple[str, str]]]


class WarmPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is needed to start a warm process, and a session in that process.

    `argv` and `env` are those of the process (an ACP server). `cwd`, `mode` and `model` are those
    of the session.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    mode: str
    """The approval mode of the session in ACP.

    If the option `approval` is `auto_edit`, this mode is `default`, because the CLI's mode
    `autoEdit` never asks for permission. The policy then has additional allow rules, which have the
    effect of `auto_edit`.
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
        """Whether each session signs in with its own token. The process then needs no API key."""
        return self.route.signs_in_by_session

    @property
    def key(self) -> Key:
        """Identifies the process: sessions whose plans have equal keys can use the same process."""
        return (self.argv, frozenset(self.env.items()))
