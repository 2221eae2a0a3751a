"""The single checks of a doctor's visit: toolchain, folders, trust, search, processes of dead hosts."""

from __future__ import annotations

import os
import stat
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
    "Level",
    "Scene",
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
    """One finding: what was looked at, how it is, the facts, and what to do where that is not well."""

    code: str
    level: Level
    detail: str
    hint: str | None = None


class Scene:
    """What all checks look at, each thing found out once."""

    def __init__(self, options: Options, environ: Mapping[str, str]) -> None:
        self.options = options
        self.places = Places.of(environ)
        self.env_file_problem: str | None = None
        self.env = base_environment(environ, options, self._from_file())

    def _from_file(self) -> dict[str, str]:
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
            hint = "Name another folder with GEMINIDS_HOME."
            return ToolchainError(f"{self.places.root} cannot be used: {error.strerror}", hint=hint)

    @cached_property
    def source(self) -> SourceHome | SettingsProblem:
        try:
            return source_home(self.options.home, self.env, self.places)
        except SettingsProblem as problem:
            return problem


def options(scene: Scene) -> Check | None:
    """All options but `cwd`, which has a check of its own; None where they are well."""
    problems = [scene.env_file_problem] if scene.env_file_problem else []
    try:
        make_options(scene.options)
    except OptionsError as error:
        problems += [f"{name}: {what}" for name, what in error.problems if name != "cwd"]
    if not problems:
        return None
    return Check("options", "error", "; ".join(problems), "Mend the option that is named.")


def node(scene: Scene) -> Check:
    """Which Node runs the CLI."""
    gemini = scene.gemini
    if isinstance(gemini, Gemini):
        found = gemini.node
        if found is None:
            return Check("node", "ok", f"not needed: {gemini.entry} is a program of its own")
    elif isinstance(gemini, NodeMissing):
        return Check("node", "error", _with_looked(gemini), gemini.hint)
    else:
        try:
            found = find_node(scene.places, environ=scene.env)
        except NodeMissing as error:
            return Check("node", "error", _with_looked(error), error.hint)
    return Check("node", "ok", f"{found.version} at {found.path} ({found.origin})")


def cli(scene: Scene) -> Check:
    """Which Gemini CLI a run would use."""
    gemini = scene.gemini
    if isinstance(gemini, Gemini):
        version = gemini.version or "of unknown version"
        return Check("cli", "ok", f"{version} at {gemini.entry} ({gemini.origin})")
    if isinstance(gemini, NodeMissing):
        return Check("cli", "skipped", "not identified: there is no Node to run it")
    return Check("cli", "error", _with_looked(gemini), gemini.hint)


def cli_version(scene: Scene) -> Check:
    """Whether geminids runs this release, and is tested with it."""
    code = "cli_version"
    if not isinstance(scene.gemini, Gemini):
        return Check(code, "skipped", "there is no CLI to ask")
    release = scene.gemini.release
    if refused := release.why_refused:
        return Check(code, "error", refused, "Run: geminids install")
    span = f"{OLDEST_SUPPORTED} to {NEWEST_TESTED}.x"
    if release.is_tested:
        return Check(code, "ok", f"{release.version} is a release that geminids is tested with ({span})")
    hint = f"It is taken to work as {NEWEST_TESTED}; if it does not, install a tested one: geminids install 0.61.0"
    return Check(code, "warning", f"{release.name} is not tested with geminids (tested: {span})", hint)


def cwd(scene: Scene) -> Check:
    """The folder that the agent would work in."""
    path = scene.cwd
    if path.is_dir():
        if not os.access(path, os.R_OK | os.X_OK):
            return Check("cwd", "error", f"{path} cannot be entered and read", "Give yourself access to it.")
        if os.access(path, os.W_OK):
            return Check("cwd", "ok", str(path))
        return Check(
            "cwd", "warning", f"{path} cannot be written", "The agent can read here, and change nothing."
        )
    if os.path.lexists(path):
        return Check("cwd", "error", f"{path} is not a folder", "Name a folder with --cwd.")
    if scene.options.make_cwd:
        problem = _cannot_write(path)
        return Check("cwd", "error" if problem else "ok", problem or f"{path} would be made")
    return Check("cwd", "error", f"{path} does not exist", "Make it, or name another folder with --cwd.")


def trust(scene: Scene) -> Check:
    """Whether the CLI would take the folder for a trusted one: a headless run works nowhere else."""
    if not isinstance(scene.gemini, Gemini):
        return Check("trust", "skipped", "it depends on the release, and there is no CLI")
    said = scene.env.get("GEMINI_CLI_TRUST_WORKSPACE") or "true"
    # Without trust_workspace a run does not hand it on.
    if said != "true" and scene.options.trust_workspace:
        detail = f"GEMINI_CLI_TRUST_WORKSPACE={said} in the environment: the CLI would refuse to run"
        return Check("trust", "error", detail, "Take it out of the environment, or set it to true.")
    if scene.gemini.release.restricted_mode and scene.env.get("GEMINI_RESTRICTED_MODE") == "true":
        detail = "GEMINI_RESTRICTED_MODE=true in the environment: the CLI would refuse to run"
        return Check("trust", "error", detail, "Take it out of the environment.")
    what = "is trusted for this run alone" if scene.options.trust_workspace else "has no power in a run"
    return Check("trust", "ok", f"the folder {what}; your trusted folders stay as they are")


def ripgrep(scene: Scene) -> Check:
    """The CLI searches files with rg where it finds one."""
    import shutil

    rg = shutil.which("rg", path=scene.env.get("PATH", os.defpath))
    if rg:
        return Check("ripgrep", "ok", rg)
    return Check(
        "ripgrep", "info", "rg is not on PATH: the agent's search of files is slower", "Install ripgrep."
    )


def homes(scene: Scene) -> Check:
    """Our own folder, which the private homes of the CLI are in: writable, and closed to others."""
    for path in (scene.places.root, scene.places.homes):
        problem = _cannot_write(path)
        if problem:
            hint = "Make it writable, or name another folder with GEMINIDS_HOME."
            return Check("homes", "error", problem, hint)
    root = scene.places.root
    if not root.exists():
        return Check("homes", "ok", f"{root} would be made")
    mode = stat.S_IMODE(root.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        return Check(
            "homes", "warning", f"{root} is open to others (mode {mode:o})", f"Run: chmod 700 {root}"
        )
    return Check("homes", "ok", str(root))


def sessions_home(scene: Scene) -> Check:
    """Where the CLI's session files go."""
    if isinstance(scene.source, SettingsProblem):
        return Check("sessions_home", "skipped", "the settings of this home cannot be read")
    path = scene.source.gemini / "tmp"
    problem = _cannot_write(path)
    if problem:
        return Check("sessions_home", "error", problem, "Make it writable: sessions are written there.")
    return Check("sessions_home", "ok", str(path) if path.exists() else f"{path} would be made")


def orphans(scene: Scene) -> Check:
    """Processes whose host is dead; also forgets kept leftovers that have ended."""
    from geminids.process.orphans import Orphan, find_orphans, forget_kept  # imported late: psutil

    def listed(ones: tuple[Orphan, ...]) -> str:
        return "".join(f"\n{one.pid}, {_ago(one.age)} old: {one.command}" for one in ones)

    forget_kept(scene.places)
    seen = find_orphans(scene.places)
    parts = []
    if seen.orphans:
        parts.append(f"{_count(seen.orphans)} left by a dead host{listed(seen.orphans)}")
    if seen.kept:
        parts.append(f"{_count(seen.kept)} kept on purpose by a run{listed(seen.kept)}")
    if seen.sheltered:
        what = "of a dead host within a live run, whose end ends it"
        parts.append(f"{_count(seen.sheltered)} {what}{listed(seen.sheltered)}")
    if seen.elsewhere:
        what = "left by a dead host with another GEMINIDS_HOME, whose doctor can end it"
        parts.append(f"{_count(seen.elsewhere)} {what}{listed(seen.elsewhere)}")
    detail = "\n".join(parts) or "no process of a dead host is left"
    if seen.orphans:
        return Check("orphans", "warning", detail, "End them with: geminids doctor --end-orphans")
    return Check("orphans", "info" if parts else "ok", detail)


def _with_looked(error: ToolchainError) -> str:
    """The message, and the places where something was found that did not serve."""
    telling = [place for place in error.looked if not place.endswith(": none")]
    return error.message + (f" (looked at {'; '.join(telling)})" if telling else "")


def _cannot_write(path: Path) -> str | None:
    """Why nothing can be written in a folder, which may not be there yet; None where it can."""
    there = path
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{there} is not a folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written"
    return None


def _count(ones: tuple[object, ...]) -> str:
    return "1 process" if len(ones) == 1 else f"{len(ones)} processes"


def _ago(seconds: float) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"
