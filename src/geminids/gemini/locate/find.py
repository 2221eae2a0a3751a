"""Find the Gemini CLI for a run: the requested one, otherwise the first that the search finds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from geminids.config.paths import Places
from geminids.errors import CliMissing, NodeMissing, ToolchainError
from geminids.gemini.features import release_of
from geminids.gemini.locate.cli import PACKAGE, Gemini, Origin, Package, identify, package_in
from geminids.gemini.locate.node import Node, find_node
from geminids.gemini.locate.search import common_places, on_path
from geminids.gemini.versions import Version
from geminids.redact import is_secret_name

__all__ = ["Availability", "Installed", "find", "installed", "is_available", "record_of"]

_HINT = "Run: geminids install (or set GEMINI_CLI_PATH)"


class Installed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The contents of `geminids.json` in a managed install."""

    version: str
    installed_at: int
    tag: str | None = None
    node: str | None = None
    bytes: int | None = None


class Availability(NamedTuple):
    """Whether Gemini CLI can be started, and why or why not."""

    ok: bool
    reason: str


def find(
    wanted: str | None = None, *, environ: Mapping[str, str] | None = None, places: Places | None = None
) -> Gemini:
    """Find the Gemini CLI to run. `wanted` is a version or tag that geminids installed, or a path.

    Without `wanted`, it searches `GEMINI_CLI_PATH`, PATH, managed installs, then the folders of
    package and version managers. It returns an unsupported release only if it finds no supported
    one; a run then rejects it. It starts a process only for a program that it has not seen before.
    """
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    if wanted:
        return _wanted(wanted, environ, places)
    named = environ.get("GEMINI_CLI_PATH")
    if named:
        return _at(_path_of(named, environ), "GEMINI_CLI_PATH", environ, places)
    looked: list[str] = []
    too_old: Gemini | None = None
    for gemini in _search(environ, places, looked):
        if gemini.release.is_supported:
            return gemini
        too_old = too_old or gemini
    if too_old is not None:
        return too_old
    raise CliMissing("Gemini CLI was not found", hint=_HINT, looked=looked)


def installed(places: Places, *, environ: Mapping[str, str] | None = None) -> list[Gemini]:
    """Return the releases that geminids has installed, newest first."""
    environ = os.environ if environ is None else environ
    packages = _managed(places)
    try:
        node = find_node(places, environ=environ) if packages else None
    except NodeMissing:
        node = None  # list them anyway; `find` reports the missing Node
    return [_gemini(package, node) for package in packages]


def record_of(version: str, places: Places) -> Installed | None:
    """Return the install record of `version`; None if it is missing or invalid."""
    try:
        return msgspec.json.decode((places.releases / version / "geminids.json").read_bytes(), type=Installed)
    except (OSError, msgspec.MsgspecError):
        return None


def is_available(
    wanted: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    timeout: float = 10.0,
) -> Availability:
    """Check that Gemini CLI starts (with `--version`) and that geminids supports its release."""
    from geminids.config.paths import private_dir
    from geminids.gemini.locate.probe import run_command

    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    try:
        gemini = find(wanted, environ=environ, places=places)
    except ToolchainError as error:
        return Availability(False, error.message)
    if refused := gemini.release.why_refused:
        return Availability(False, refused)
    probe_environ = {name: value for name, value in environ.items() if not is_secret_name(name)}
    probe_environ["GEMINI_CLI_NO_RELAUNCH"] = "true"
    argv = (*gemini.command(places), "--version")
    result = run_command(argv, environ=probe_environ, cwd=private_dir(places.root), timeout=timeout)
    if result.code == 0:
        version = result.out.strip() or "of unknown version"
        return Availability(True, f"Gemini CLI {version} at {gemini.entry}")
    errors = result.err.strip().splitlines()
    ended = f"exit code {result.code}" if result.code is not None else "did not finish"
    return Availability(False, f"{gemini.entry} --version: {ended}" + (f": {errors[-1]}" if errors else ""))


def _wanted(wanted: str, environ: Mapping[str, str], places: Places) -> Gemini:
    if Version.parse(wanted) is None and (os.sep in wanted or "/" in wanted or wanted.startswith("~")):
        return _at(Path(wanted).expanduser(), "option", environ, places)
    packages = _managed(places)
    for package in packages:
        if _matches(package.version, wanted, places):
            return _gemini(package, find_node(places, environ=environ))
    versions = ", ".join(package.version for package in packages)
    looked = [f"{places.releases}: {versions or 'nothing installed'}"]
    message = f"Gemini CLI {wanted} is not installed by geminids"
    raise CliMissing(message, hint=f"Run: geminids install {wanted}", looked=looked)


def _path_of(named: str, environ: Mapping[str, str]) -> Path:
    # As in a shell, a bare name is looked up on PATH only, never in the working directory.
    if os.path.basename(named) != named:
        return Path(named).expanduser()
    for path in on_path(environ, (named,)):
        return path
    raise CliMissing(f"GEMINI_CLI_PATH names {named}: not on PATH", hint=_HINT, looked=[f"PATH: no {named}"])


def _at(path: Path, origin: Origin, environ: Mapping[str, str], places: Places) -> Gemini:
    gemini = identify(path.absolute(), origin, places, environ)
    if isinstance(gemini, Gemini):
        return gemini
    source = "GEMINI_CLI_PATH names" if origin == "GEMINI_CLI_PATH" else "no Gemini CLI at"
    hint = "Use the path of Gemini CLI's script, its folder or a gemini executable."
    raise CliMissing(f"{source} {path}: {gemini}", hint=hint, looked=[f"{path}: {gemini}"])


def _search(environ: Mapping[str, str], places: Places, looked: list[str]) -> Iterator[Gemini]:
    count = len(looked)
    for path in on_path(environ):
        if not os.access(path, os.X_OK):
            looked.append(f"{path}: {'not executable' if path.exists() else 'broken link'}")
            continue
        gemini = identify(path, "path", places, environ)
        if isinstance(gemini, Gemini):
            yield gemini
        else:
            looked.append(f"{path}: {gemini}")
    if len(looked) == count:
        looked.append("PATH: no gemini")
    # Releases come first: an installed preview or nightly does not become the default.
    for package in sorted(_managed(places), key=lambda package: "-" in package.version):
        yield _gemini(package, find_node(places, environ=environ))
    looked.append(f"{places.releases}: nothing installed")
    for pattern, paths in common_places(environ):
        for path in paths:
            gemini = identify(path, "common", places, environ)
            if isinstance(gemini, Gemini):
                yield gemini
            else:
                looked.append(f"{path}: {gemini}")
        if not paths:
            looked.append(f"{pattern}: none")


def _matches(version: str, wanted: str, places: Places) -> bool:
    if version == wanted.removeprefix("v"):
        return True
    if re.fullmatch(r"\d+\.\d+", wanted):  # 0.41 is the newest 0.41.x, as in npm
        return version.startswith(f"{wanted}.")
    record = record_of(version, places)
    return record is not None and record.tag == wanted


def _gemini(package: Package, node: Node | None) -> Gemini:
    release = release_of(package.version)
    return Gemini(entry=package.entry, version=package.version, origin="managed", node=node, release=release)


def _managed(places: Places) -> list[Package]:
    try:
        names = os.listdir(places.releases)
    except OSError:
        return []
    versions = sorted(((v, name) for name in names if (v := Version.parse(name))), reverse=True)
    packages = (package_in(places.releases / name / "node_modules" / PACKAGE) for _, name in versions)
    return [package for package in packages if package]
