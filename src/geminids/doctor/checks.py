"""The checks of options, Node, CLI, folders, trust and ripgrep. Another check finds processes that
were left by a program that has died.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from geminids.config.paths import Places
from geminids.errors import NodeMissing, OptionsError, ToolchainError
from geminids.gemini import Gemini, find, find_node
from geminids.gemini.features import NEWEST_TESTED, OLDEST_SUPPORTED
from geminids.gemini.settings_file import SettingsProblem
from geminids.launch.environment import EnvFileProblem, base_environment, read_env_file
from geminids.launch.home import SourceHome, source_home
from geminids.options import Options, make_options

__all__ = [
    "Check",
    "CheckContext",
    "Level",
    "cli",
    "cli_version",
    "cwd",
    "homes",
    "node",
    "options",
    "orphans",
    "ripgrep",
    "sessions_home",
    "trust",
]

Level = Literal["ok", "info", "warning", "error", "skipped"]


class Check(msgspec.Struct, frozen=True):
    """The result of one check of the environment.

    `code` names the check. `detail` says what was found, and `hint` what to do about a problem.
    """

    code: str
    level: Level
    detail: str
    hint: str | None = None


class CheckContext:
    """The input of all checks: the options, the environment, the CLI and its settings.

    The CLI and its settings are looked up when a check first uses them.
    """

    def __init__(self, options: Options, environ: Mapping[str, str]) -> None:
        self.options = options
        self.places = Places.of(environ)
        self.env_file_problem: str | None = None
        self.env = base_environment(environ, options, self._read_env_file())

    def _read_env_file(self) -> dict[str, str]:
        file = self.options.env_file
        try:
            return read_env_file(Path(file).read_text("utf-8"), file) if file else {}
        except (OSError, UnicodeDecodeError, EnvFileProblem) as error:
            self.env_file_problem = str(error)
            return {}

    @cached_property
    def cwd(self) -> Path:
        return Path(os.path.abspath(self.options.cwd))

    @cached_property
    def gemini(self) -> Gemini | ToolchainError:
        try:
            return find(self.options.gemini, environ=self.env, places=self.places)
        except ToolchainError as error:
            return error
        except OSError as error:
            hint = "Set GEMINIDS_HOME to another folder."
            return ToolchainError(f"{self.places.root} cannot be used: {error.strerror}", hint=hint)

    @cached_property
    def source(self) -> SourceHome | SettingsProblem:
        try:
            return source_home(self.options.home, self.env, self.places)
        except SettingsProblem as problem:
            return problem


def options(context: CheckContext) -> Check | None:
    """Check all options except `cwd`, which has its own check. Return None if all of these options
    are valid."""
    problems = [context.env_file_problem] if context.env_file_problem else []
    try:
        make_options(context.options)
    except OptionsError as error:
        problems += [f"{name}: {problem}" for name, problem in error.problems if name != "cwd"]
    if not problems:
        return None
    return Check("options", "error", "; ".join(problems), "Correct these options.")


def node(context: CheckContext) -> Check:
    """Check that there is a Node to run the CLI, and report which one. If the CLI needs no Node,
    the check succeeds.
    """
    gemini = context.gemini
    if isinstance(gemini, Gemini):
        program = gemini.node
        if program is None:
            return Check(
                "node", "ok", f"Node is not needed: {gemini.entry} is an executable that runs without it"
            )
    elif isinstance(gemini, NodeMissing):
        return Check("node", "error", _with_candidates(gemini), gemini.hint)
    else:
        try:
            program = find_node(context.places, environ=context.env)
        except NodeMissing as error:
            return Check("node", "error", _with_candidates(error), error.hint)
    return Check("node", "ok", f"{program.version} at {program.path} ({program.origin})")


def cli(context: CheckContext) -> Check:
    """Check that a Gemini CLI is installed, and report which one a run would use."""
    gemini = context.gemini
    if isinstance(gemini, Gemini):
        version = gemini.version or "unknown version"
        return Check("cli", "ok", f"{version} at {gemini.entry} ({gemini.origin})")
    if isinstance(gemini, NodeMissing):
        return Check("cli", "skipped", "not checked: Node is missing")
    return Check("cli", "error", _with_candidates(gemini), gemini.hint)


def cli_version(context: CheckContext) -> Check:
    """Check whether geminids supports the version of the installed CLI, and whether this version
    was tested."""
    code = "cli_version"
    if not isinstance(context.gemini, Gemini):
        return Check(code, "skipped", "not checked: no CLI was found")
    release = context.gemini.release
    if refused := release.why_refused:
        return Check(code, "error", refused, "Run: geminids install")
    span = f"{OLDEST_SUPPORTED} to {NEWEST_TESTED}.x"
    if release.is_tested:
        return Check(code, "ok", f"{release.version} is tested with geminids (tested: {span})")
    hint = (
        f"geminids treats this version like version {NEWEST_TESTED}. "
        "If a run fails, install a tested version: geminids install 0.61.0"
    )
    return Check(code, "warning", f"{release.name} is not tested with geminids (tested: {span})", hint)


def cwd(context: CheckContext) -> Check:
    """Check that the folder in which the agent would work can be used."""
    path = context.cwd
    if path.is_dir():
        if not os.access(path, os.R_OK | os.X_OK):
            return Check(
                "cwd",
                "error",
                f"{path} is not readable",
                "Change its permissions, or select another folder with `cwd`.",
            )
        if os.access(path, os.W_OK):
            return Check("cwd", "ok", str(path))
        return Check(
            "cwd",
            "warning",
            f"{path} is not writable",
            "The agent can read the files in this folder, but cannot change them.",
        )
    if os.path.lexists(path):
        return Check("cwd", "error", f"{path} is not a folder", "Select a folder with `cwd`.")
    if context.options.make_cwd:
        problem = _write_problem(path)
        return Check("cwd", "error" if problem else "ok", problem or f"{path} will be created")
    return Check(
        "cwd", "error", f"{path} does not exist", "Create this folder, or select another one with `cwd`."
    )


def trust(context: CheckContext) -> Check:
    """Check that no environment variable makes the CLI refuse to run in this folder.

    A headless CLI runs only in a trusted folder. So a run makes the CLI trust the folder, but some
    environment variables prevent this.
    """
    if not isinstance(context.gemini, Gemini):
        return Check("trust", "skipped", "not checked: no CLI was found")
    value = context.env.get("GEMINI_CLI_TRUST_WORKSPACE") or "true"
    # Without the option `trust_workspace`, a run does not pass this variable to the CLI.
    if value != "true" and context.options.trust_workspace:
        detail = f"GEMINI_CLI_TRUST_WORKSPACE is {value} in the environment, so the CLI would refuse to run"
        return Check("trust", "error", detail, "Unset this variable, or set it to true.")
    if context.gemini.release.restricted_mode and context.env.get("GEMINI_RESTRICTED_MODE") == "true":
        detail = "GEMINI_RESTRICTED_MODE is true in the environment, so the CLI would refuse to run"
        return Check("trust", "error", detail, "Unset this variable.")
    if context.options.trust_workspace:
        detail = "the folder is trusted for this run only"
    else:
        detail = "settings, hooks and MCP servers of the folder are ignored"
    return Check("trust", "ok", f"{detail}; your list of trusted folders is not changed")


def ripgrep(context: CheckContext) -> Check:
    """Check whether ripgrep is installed. With ripgrep, the CLI searches files faster."""
    rg = shutil.which("rg", path=context.env.get("PATH", os.defpath))
    if rg:
        return Check("ripgrep", "ok", rg)
    return Check(
        "ripgrep",
        "info",
        "ripgrep (rg) is not on PATH, so the CLI searches files more slowly",
        "Install ripgrep.",
    )


def homes(context: CheckContext) -> Check:
    """Check that the folder of geminids (`GEMINIDS_HOME`) is writable, and that no other user can
    access it.
    """
    for path in (context.places.root, context.places.homes):
        problem = _write_problem(path)
        if problem:
            hint = "Make this folder writable, or set GEMINIDS_HOME to another folder."
            return Check("homes", "error", problem, hint)
    root = context.places.root
    if not root.exists():
        return Check("homes", "ok", f"{root} will be created")
    mode = stat.S_IMODE(root.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        return Check(
            "homes", "warning", f"other users can access {root} (mode {mode:o})", f"Run: chmod 700 {root}"
        )
    return Check("homes", "ok", str(root))


def sessions_home(context: CheckContext) -> Check:
    """Check that the folder in which the CLI stores its sessions is writable."""
    if isinstance(context.source, SettingsProblem):
        return Check("sessions_home", "skipped", "not checked: the CLI's settings file cannot be read")
    path = context.source.gemini / "tmp"
    problem = _write_problem(path)
    if problem:
        return Check(
            "sessions_home", "error", problem, "Make this folder writable: the CLI stores sessions in it."
        )
    return Check("sessions_home", "ok", str(path) if path.exists() else f"{path} will be created")


def orphans(context: CheckContext) -> Check:
    """Check whether processes of a run are still running although the program that started the run
    has died. Processes that a run left on purpose (`--leftovers keep`) are also reported.

    For each run that leaves processes on purpose, geminids creates a file. This check removes the
    file if all processes of its run have ended.
    """
    # Imported late (psutil): the Leadmetrics adapter imports this module before it starts the CLI.
    from geminids.process.orphans import Orphan, find_orphans, forget_kept

    def listed(processes: tuple[Orphan, ...]) -> str:
        return "".join(
            f"\n{process.pid}, {_age(process.age)} old: {process.command}" for process in processes
        )

    forget_kept(context.places)
    survey = find_orphans(context.places)
    parts = []
    if survey.orphans:
        parts.append(f"{_count(survey.orphans)} left by a program that has died{listed(survey.orphans)}")
    if survey.kept:
        parts.append(
            f"{_count(survey.kept)} left running on purpose by a run with --leftovers keep{listed(survey.kept)}"
        )
    if survey.sheltered:
        kind = "left by a program that has died, inside another run; they end when that run ends"
        parts.append(f"{_count(survey.sheltered)} {kind}{listed(survey.sheltered)}")
    if survey.elsewhere:
        kind = (
            "left by a program that has died and that used another GEMINIDS_HOME; "
            "to end such processes, run the doctor with that GEMINIDS_HOME"
        )
        parts.append(f"{_count(survey.elsewhere)} {kind}{listed(survey.elsewhere)}")
    detail = "\n".join(parts) or "no processes are left by programs that have died"
    if survey.orphans:
        return Check("orphans", "warning", detail, "End them with: geminids doctor --end-orphans")
    return Check("orphans", "info" if parts else "ok", detail)


def _with_candidates(error: ToolchainError) -> str:
    """Return the message of an error, followed by the programs that were found but are unusable."""
    unusable = [place for place in error.looked if not place.endswith(": none")]
    return error.message + (f" (looked at {'; '.join(unusable)})" if unusable else "")


def _write_problem(path: Path) -> str | None:
    """Return why a folder cannot be created or written to; None if there is no such problem."""
    existing = path
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is not a folder"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} is not writable"
    try:
        # Some folders refuse every new file, also to root: for example /proc.
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return f"{existing} is not writable: {error.strerror}"


def _count(processes: tuple[object, ...]) -> str:
    return "1 process" if len(processes) == 1 else f"{len(processes)} processes"


def _age(seconds: float) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"
