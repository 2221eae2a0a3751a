"""Determine whether a file or a folder is a Gemini CLI, and read its version."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from geminids.config.paths import Places, private_dir
from geminids.gemini.features import Release, release_of
from geminids.gemini.locate.node import Node, find_node, node_arguments, preload_file, write_preload
from geminids.gemini.locate.probe import CommandResult, load_probe, run_command, store_probe
from geminids.gemini.locate.shims import runs_on_node, shim_target
from geminids.gemini.versions import Version
from geminids.redact import is_secret_name

__all__ = ["PACKAGE", "Gemini", "Origin", "Package", "identify", "package_in", "probe_version", "run_version"]

PACKAGE = "@google/gemini-cli"

Origin = Literal["option", "GEMINI_CLI_PATH", "path", "managed", "common"]

# How long the cached version of an executable is used, in seconds. A shim (a small program of mise,
# volta or asdf that starts the real CLI) can switch to another release without changing its file.
_PROBE_MAX_AGE = 600.0
_SCRIPTS = (".js", ".mjs", ".cjs")


class Gemini(msgspec.Struct, frozen=True, kw_only=True):
    """A Gemini CLI on this machine.

    `path` is the executable that was found, for example a link in a folder of PATH. `entry` is the
    file that is started: usually the script of the CLI. Then `node` is the Node that runs this
    script. If `entry` is started without Node, for example because it is a shim (the starter
    program of a version manager), `node` is None. `origin` says how the CLI was found.
    """

    path: Path
    entry: Path
    version: str | None
    origin: Origin
    node: Node | None
    release: Release

    def command(self, places: Places) -> tuple[str, ...]:
        """Return the command that starts the CLI, without the CLI's own arguments.

        If the CLI runs on Node, this method also writes the script that Node loads before the CLI
        (see `write_preload`).
        """
        return self._command(write_preload(places) if self.node is not None else None)

    def planned_command(self, places: Places, *, lasting: bool = False) -> tuple[str, ...]:
        """Return the command that starts the CLI, without the CLI's own arguments. Unlike
        `command`, this method writes no file.

        If `lasting` is true, the command is for a long-lived process: Node gets arguments with
        which it uses less memory.
        """
        return self._command(preload_file(places) if self.node is not None else None, lasting=lasting)

    def _command(self, preload: Path | None, *, lasting: bool = False) -> tuple[str, ...]:
        if self.node is None:
            return (str(self.entry),)
        return (str(self.node.path), *node_arguments(self.node, preload, lasting=lasting), str(self.entry))


class Package(msgspec.Struct, frozen=True):
    """An installed npm package of Gemini CLI: its version, and the path of the script that starts
    the CLI.
    """

    version: str
    entry: Path


class _Manifest(msgspec.Struct):
    name: str = ""
    version: str = ""
    bin: dict[str, str] | str = ""


def package_in(folder: Path) -> Package | None:
    """Return the npm package of Gemini CLI whose `package.json` is directly in this folder.

    Return None if this folder is not the folder of a complete package.
    """
    try:
        manifest = msgspec.json.decode((folder / "package.json").read_bytes(), type=_Manifest)
    except (OSError, msgspec.MsgspecError):
        return None
    script = manifest.bin.get("gemini", "") if isinstance(manifest.bin, dict) else manifest.bin
    if manifest.name != PACKAGE or not manifest.version or not script:
        return None
    entry = folder / script
    return Package(manifest.version, entry) if entry.is_file() else None


def identify(path: Path, origin: Origin, places: Places, environ: Mapping[str, str]) -> Gemini | str:
    """Return the Gemini CLI at `path`. If there is none, return a text that says what is there
    instead, for example "broken link". Raises `NodeMissing` if the CLI needs a Node and none is
    found.
    """
    if not path.exists():
        return "broken link" if path.is_symlink() else "does not exist"
    if path.is_dir():
        return _in_folder(path, origin, places, environ)
    real = path.resolve()
    package = _package_around(real)
    if package is None:
        text = _head(real)
        target = shim_target(real, text)
        if target is not None:
            package = _package_around(target.resolve()) if target.is_file() else None
            if package is None:
                return f"a small script that starts another file, which is not Gemini CLI: {target}"
    if package is not None:
        return _of_package(package, path.absolute(), origin, places, environ)
    if real.suffix in _SCRIPTS or runs_on_node(text):
        node: Node | None = find_node(places, environ=environ)
    elif not os.access(path, os.X_OK):
        return "not executable"
    else:
        node = None
    # Do not resolve links in the path: a shim of mise or volta starts the program that has the name
    # of the link.
    return _probed(path.absolute(), node, origin, places, environ)


def probe_version(
    command: tuple[str, ...], places: Places, environ: Mapping[str, str], *, timeout: float = 10
) -> str | None:
    """Run a program with `--version`, and return the version that it prints.

    Return None if the program fails, or does not print a version within `timeout` seconds.
    """
    result = run_version(command, places, environ, timeout=timeout)
    words = result.out.split() if result.code == 0 else []
    return words[-1] if words and Version.parse(words[-1]) else None


def run_version(
    command: tuple[str, ...], places: Places, environ: Mapping[str, str], *, timeout: float
) -> CommandResult:
    """Run a program with `--version`, and return its exit code and output. The program uses a
    temporary home; files that it writes there are removed.
    """
    # Use a temporary home and cwd: even with `--version`, the CLI writes to ~/.gemini and reads a
    # .env from its cwd. A shim (volta, mise) needs the real HOME, so only a script that our Node
    # runs gets a temporary HOME.
    with tempfile.TemporaryDirectory(prefix=".probe-", dir=private_dir(places.root)) as home:
        probe_environ = {name: value for name, value in environ.items() if not is_secret_name(name)}
        probe_environ |= {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_HOME": home}
        if len(command) > 1:
            probe_environ["HOME"] = home
        return run_command((*command, "--version"), environ=probe_environ, cwd=Path(home), timeout=timeout)


def _in_folder(folder: Path, origin: Origin, places: Places, environ: Mapping[str, str]) -> Gemini | str:
    inside = f"node_modules/{PACKAGE}"
    for part in ("", inside, f"lib/{inside}"):
        package = package_in(folder / part)
        if package is not None:
            return _of_package(package, package.entry, origin, places, environ)
    for part in ("bin/gemini", "gemini"):
        if (folder / part).is_file():
            return identify(folder / part, origin, places, environ)
    return "a folder with no Gemini CLI in it"


def _of_package(
    package: Package, path: Path, origin: Origin, places: Places, environ: Mapping[str, str]
) -> Gemini:
    return Gemini(
        path=path,
        entry=package.entry,
        version=package.version,
        origin=origin,
        node=find_node(places, environ=environ),
        release=release_of(package.version),
    )


def _probed(
    path: Path, node: Node | None, origin: Origin, places: Places, environ: Mapping[str, str]
) -> Gemini:
    probe = load_probe(places, path, max_age=_PROBE_MAX_AGE)
    release = release_of(None)
    gemini = Gemini(path=path, entry=path, version=None, origin=origin, node=node, release=release)
    if probe is None:
        probe = store_probe(places, path, probe_version(gemini.command(places), places, environ))
    return msgspec.structs.replace(gemini, version=probe.version, release=release_of(probe.version))


def _package_around(file: Path) -> Package | None:
    # The script is one or two folders below its package (bundle/gemini.js, dist/src/gemini.js).
    for folder in file.parents[:4]:
        if (folder / "package.json").is_file():
            return package_in(folder)
    return None


def _head(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(8192).decode("utf-8", "replace")
    except OSError:
        return ""
