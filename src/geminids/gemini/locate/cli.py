"""A Gemini CLI on this machine, and how to recognise a file or folder as one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from geminids.config.paths import Places, private_dir
from geminids.gemini.features import Release, release_of
from geminids.gemini.locate.node import Node, find_node, node_arguments, preload_file, write_preload
from geminids.gemini.locate.probe import load_probe, store_probe
from geminids.gemini.locate.shims import runs_on_node, shim_target
from geminids.redact import is_secret_name

__all__ = ["PACKAGE", "Gemini", "Origin", "Package", "identify", "package_in", "probe_version"]

PACKAGE = "@google/gemini-cli"

Origin = Literal["option", "GEMINI_CLI_PATH", "path", "managed", "common"]

# A shim of mise, volta or asdf can switch to another release while its own file stays the same.
_PROBE_MAX_AGE = 600.0
_SCRIPTS = (".js", ".mjs", ".cjs")


class Gemini(msgspec.Struct, frozen=True, kw_only=True):
    """A Gemini CLI. `node` is None if `entry` is an executable (a version manager's shim)."""

    entry: Path
    version: str | None
    origin: Origin
    node: Node | None
    release: Release

    def command(self, places: Places) -> tuple[str, ...]:
        """Return the start of its argv; writes the file that Node loads before the CLI."""
        return self._command(write_preload(places) if self.node is not None else None)

    def planned_command(self, places: Places, *, lasting: bool = False) -> tuple[str, ...]:
        """Return the start of its argv; writes nothing. `lasting` is for a long-lived process."""
        return self._command(preload_file(places) if self.node is not None else None, lasting=lasting)

    def _command(self, preload: Path | None, *, lasting: bool = False) -> tuple[str, ...]:
        if self.node is None:
            return (str(self.entry),)
        return (str(self.node.path), *node_arguments(self.node, preload, lasting=lasting), str(self.entry))


class Package(msgspec.Struct, frozen=True):
    """An unpacked npm package: its version and its entry script."""

    version: str
    entry: Path


class _Manifest(msgspec.Struct):
    name: str = ""
    version: str = ""
    bin: dict[str, str] | str = ""


def package_in(folder: Path) -> Package | None:
    """Return the Gemini CLI package in exactly this folder; None if there is no complete one."""
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
    """Return the Gemini CLI at `path`, or a phrase that says why it is not one."""
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
                return f"a shim for {target}, which is not Gemini CLI"
    if package is not None:
        return _of_package(package, origin, places, environ)
    if real.suffix in _SCRIPTS or runs_on_node(text):
        node: Node | None = find_node(places, environ=environ)
    elif not os.access(path, os.X_OK):
        return "not executable"
    else:
        node = None
    # Not the resolved path: the shims of mise and volta choose the program by the name they are
    # called with.
    return _probed(path.absolute(), node, origin, places, environ)


def probe_version(command: tuple[str, ...], places: Places, environ: Mapping[str, str]) -> str | None:
    """Run a program with `--version` and return the version; None if it prints none within 10 s."""
    import tempfile

    from geminids.gemini.locate.probe import run_command
    from geminids.gemini.versions import Version

    # Use a temporary home and cwd: even `--version` writes to ~/.gemini and reads a .env from its
    # cwd. A shim (volta, mise) needs the real HOME; a script that our Node runs gets the temporary
    # one.
    with tempfile.TemporaryDirectory(prefix=".probe-", dir=private_dir(places.root)) as home:
        probe_environ = {name: value for name, value in environ.items() if not is_secret_name(name)}
        probe_environ |= {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_HOME": home}
        if len(command) > 1:
            probe_environ["HOME"] = home
        result = run_command((*command, "--version"), environ=probe_environ, cwd=Path(home), timeout=10)
    words = result.out.split() if result.code == 0 else []
    return words[-1] if words and Version.parse(words[-1]) else None


def _in_folder(folder: Path, origin: Origin, places: Places, environ: Mapping[str, str]) -> Gemini | str:
    inside = f"node_modules/{PACKAGE}"
    for part in ("", inside, f"lib/{inside}"):
        package = package_in(folder / part)
        if package is not None:
            return _of_package(package, origin, places, environ)
    for part in ("bin/gemini", "gemini"):
        if (folder / part).is_file():
            return identify(folder / part, origin, places, environ)
    return "a folder with no Gemini CLI in it"


def _of_package(package: Package, origin: Origin, places: Places, environ: Mapping[str, str]) -> Gemini:
    return Gemini(
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
    gemini = Gemini(entry=path, version=None, origin=origin, node=node, release=release_of(None))
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
