"""Find the Gemini CLI for a run: the one that an option or GEMINI_CLI_PATH names or, if neither is
set, the first suitable one on this machine.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from geminids.config.paths import Places
from geminids.errors import CliMissing, NodeMissing, ToolchainError
from geminids.gemini.features import release_of
from geminids.gemini.locate.candidates import common_places, on_path
from geminids.gemini.locate.identify import (
    PACKAGE,
    Gemini,
    Origin,
    Package,
    identify,
    package_in,
    run_version,
)
from geminids.gemini.locate.node import Node, find_node
from geminids.gemini.locate.probe import load_probe, time_limit
from geminids.gemini.versions import Version

__all__ = ["Availability", "Installed", "find", "installed", "is_available", "record_of"]

_HINT = "Run: geminids install (or set GEMINI_CLI_PATH)"


class Installed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of `geminids.json`, the file that geminids writes into the folder of each release
    that it installs.

    `installed_at` is the time of the installation in Unix seconds. `bytes` is the size of the
    installed files. `tag` is the npm tag that was installed, such as `latest`; None for an exact
    version.
    """

    version: str
    installed_at: int
    tag: str | None = None
    node: str | None = None
    bytes: int | None = None


class Availability(NamedTuple):
    """Whether Gemini CLI can be started on this machine.

    If `ok` is True, `reason` says which CLI was found. If `ok` is False, `reason` says why it
    cannot be started.
    """

    ok: bool
    reason: str


def find(
    wanted: str | None = None, *, environ: Mapping[str, str] | None = None, places: Places | None = None
) -> Gemini:
    """Find the Gemini CLI to run. Raises `ToolchainError` if there is none.

    `wanted` is a version or tag that geminids has installed, or the path of a CLI. If `wanted` is
    None, the path in `GEMINI_CLI_PATH` is used. If that variable is not set, these places are
    searched in this order: PATH, the releases that geminids has installed, and the folders of
    package and version managers.

    The result is the first supported release that is found. If no supported release is found, the
    result is the first program whose version is unknown. If there is no such program either, the
    result is the first unsupported release, which a run rejects.

    If the version of a program cannot be read from its files, the program is started with
    `--version`, and the version that it prints is cached.
    """
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    if wanted:
        return _wanted(wanted, environ, places)
    named = environ.get("GEMINI_CLI_PATH")
    if named:
        return _at(_path_of(named, environ), "GEMINI_CLI_PATH", environ, places)
    looked: list[str] = []
    unknown: Gemini | None = None
    too_old: Gemini | None = None
    for gemini in _search(environ, places, looked):
        if not gemini.release.is_supported:
            too_old = too_old or gemini
        elif gemini.version is None:
            unknown = unknown or gemini
        else:
            return gemini
    if (other := unknown or too_old) is not None:
        return other
    raise CliMissing("Gemini CLI was not found", hint=_HINT, looked=looked)


def installed(places: Places, *, environ: Mapping[str, str] | None = None) -> list[Gemini]:
    """Return the releases of Gemini CLI that geminids has installed, the newest one first. If there
    is no Node to run them, the field `node` of each release is None.
    """
    environ = os.environ if environ is None else environ
    packages = _managed(places)
    try:
        node = find_node(places, environ=environ) if packages else None
    except NodeMissing:
        node = None  # return the releases without a Node; `find` reports the missing Node
    return [_gemini(package, node) for package in packages]


def record_of(version: str, places: Places) -> Installed | None:
    """Return the content of `geminids.json`, the file that geminids writes for each version that it
    installs. Return None if the file is missing or invalid.
    """
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
    """Return whether Gemini CLI can be started with `--version` and geminids supports its release.
    The result also contains the reason.

    `wanted` is a version, a tag or a path, as in `find`. Finding and starting the CLI together take
    at most `timeout` seconds. Afterwards, no process of the CLI is running, and the files that the
    CLI wrote are removed.
    """
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    began = time.time()
    with time_limit(timeout):
        try:
            gemini = find(wanted, environ=environ, places=places)
        except ToolchainError as error:
            return Availability(False, error.message)
        if refused := gemini.release.why_refused:
            return Availability(False, refused)
        probe = load_probe(places, gemini.entry)
        if probe is not None and probe.version is not None and probe.at >= began:
            return _available(probe.version, gemini)  # `find` has just started it
        result = run_version(gemini.command(places), places, environ, timeout=timeout)
    if result.code == 0:
        words = result.out.split()
        if not words or Version.parse(words[-1]) is None:
            return Availability(False, f"{gemini.entry} --version prints no version: it is not Gemini CLI")
        return _available(words[-1], gemini)
    errors = result.err.strip().splitlines()
    ended = f"exit code {result.code}" if result.code is not None else "did not finish"
    return Availability(False, f"{gemini.entry} --version: {ended}" + (f": {errors[-1]}" if errors else ""))


def _available(version: str, gemini: Gemini) -> Availability:
    return Availability(True, f"Gemini CLI {version} at {gemini.entry}")


def _wanted(wanted: str, environ: Mapping[str, str], places: Places) -> Gemini:
    if Version.parse(wanted) is None and (os.sep in wanted or "/" in wanted or wanted.startswith("~")):
        return _at(Path(wanted).expanduser(), "option", environ, places)
    packages = _managed(places)
    for package in packages:
        if _matches(package.version, wanted, places):
            return _gemini(package, find_node(places, environ=environ))
    versions = ", ".join(package.version for package in packages)
    looked = [f"{places.releases}: {versions or 'nothing installed'}"]
    message = f"geminids has not installed Gemini CLI {wanted}"
    raise CliMissing(message, hint=f"Run: geminids install {wanted}", looked=looked)


def _path_of(named: str, environ: Mapping[str, str]) -> Path:
    # As in a shell, a bare name is looked up on PATH only, never in the working directory.
    if os.path.basename(named) != named:
        return Path(named).expanduser()
    for path in on_path(environ, (named,)):
        return path
    raise CliMissing(
        f"GEMINI_CLI_PATH is {named!r}, but no folder of PATH contains this program",
        hint="Set GEMINI_CLI_PATH to the full path of the program, or unset it.",
        looked=[f"PATH: no {named}"],
    )


def _at(path: Path, origin: Origin, environ: Mapping[str, str], places: Places) -> Gemini:
    gemini = identify(path.absolute(), origin, places, environ)
    if isinstance(gemini, Gemini):
        return gemini
    source = " (from GEMINI_CLI_PATH)" if origin == "GEMINI_CLI_PATH" else ""
    hint = "Use the path of Gemini CLI's script, its folder or a gemini executable."
    raise CliMissing(f"no Gemini CLI at {path}{source}: {gemini}", hint=hint, looked=[f"{path}: {gemini}"])


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
    # Try final releases first, so that an installed preview or nightly does not become the default.
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
    if re.fullmatch(r"\d+\.\d+", wanted):  # "0.41" means the newest 0.41.x, as in npm
        return version.startswith(f"{wanted}.")
    record = record_of(version, places)
    return record is not None and record.tag == wanted


def _gemini(package: Package, node: Node | None) -> Gemini:
    release = release_of(package.version)
    return Gemini(
        path=package.entry,
        entry=package.entry,
        version=package.version,
        origin="managed",
        node=node,
        release=release,
    )


def _managed(places: Places) -> list[Package]:
    try:
        names = os.listdir(places.releases)
    except OSError:
        return []
    versions = sorted(((v, name) for name in names if (v := Version.parse(name))), reverse=True)
    packages = (package_in(places.releases / name / "node_modules" / PACKAGE) for _, name in versions)
    return [package for package in packages if package]
