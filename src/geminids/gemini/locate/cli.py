"""One Gemini CLI on this machine, and how a file is recognised as one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from geminids.config.paths import Places, private_dir
from geminids.gemini.features import Release, release_of
from geminids.gemini.locate.node import Node, find_node, node_arguments, preload_file, write_preload
from geminids.gemini.locate.probe import recall, remember
from geminids.gemini.locate.shims import runs_on_node, shim_target
from geminids.redact import is_secret_name

__all__ = ["PACKAGE", "Gemini", "Origin", "Package", "identify", "package_in", "probe_version"]

PACKAGE = "@google/gemini-cli"

Origin = Literal["option", "GEMINI_CLI_PATH", "path", "managed", "common"]

# A shim of mise, volta or asdf can stand for another release tomorrow though its own file stays the same.
_FOREIGN_AGE = 600.0
_SCRIPTS = (".js", ".mjs", ".cjs")


class Gemini(msgspec.Struct, frozen=True, kw_only=True):
    """One Gemini CLI. `node` is None where `entry` is a program of its own (a version manager's shim)."""

    entry: Path
    version: str | None
    origin: Origin
    node: Node | None
    release: Release

    def command(self, places: Places) -> tuple[str, ...]:
        """The beginning of its argv, ready to be started: writes the file that Node loads before the CLI."""
        return self._command(write_preload(places) if self.node is not None else None)

    def planned_command(self, places: Places, *, lasting: bool = False) -> tuple[str, ...]:
        """The beginning of its argv; writes nothing. `lasting` for a process that stays."""
        return self._command(preload_file(places) if self.node is not None else None, lasting=lasting)

    def _command(self, preload: Path | None, *, lasting: bool = False) -> tuple[str, ...]:
        if self.node is None:
            return (str(self.entry),)
        return (str(self.node.path), *node_arguments(self.node, preload, lasting=lasting), str(self.entry))


class Package(msgspec.Struct, frozen=True):
    """The npm package as unpacked in a folder: its version and the script that it starts with."""

    version: str
    entry: Path


class _Manifest(msgspec.Struct):
    name: str = ""
    version: str = ""
    bin: dict[str, str] | str = ""


def package_in(folder: Path) -> Package | None:
    """The Gemini CLI package in this very folder, if it is one and is whole."""
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
    """The Gemini CLI that `path` is, or one phrase that says why it is none."""
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
                return f"a shim of {target}, which is not Gemini CLI"
    if package is not None:
        return _of_package(package, origin, places, environ)
    if real.suffix in _SCRIPTS or runs_on_node(text):
        node: Node | None = find_node(places, environ=environ)
    elif not os.access(path, os.X_OK):
        return "not executable"
    else:
        node = None
    # Not the resolved path: the shims of mise and volta find out by their name which program is meant.
    return _foreign(path.absolute(), node, origin, places, environ)


def probe_version(command: tuple[str, ...], places: Places, environ: Mapping[str, str]) -> str | None:
    """What a program answers to `--version`; None where it gives no version within 10 s."""
    import tempfile

    from geminids.gemini.locate.probe import answer_of
    from geminids.gemini.versions import Version

    # A home and a cwd of its own: even `--version` writes into ~/.gemini, and reads a .env from where it stands. A
    # shim (volta, mise) keeps HOME, which it needs itself; a script that our Node runs does not get that either.
    with tempfile.TemporaryDirectory(prefix=".probe-", dir=private_dir(places.root)) as home:
        own = {name: value for name, value in environ.items() if not is_secret_name(name)}
        own |= {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_HOME": home}
        if len(command) > 1:
            own["HOME"] = home
        answer = answer_of((*command, "--version"), environ=own, cwd=Path(home), timeout=10)
    lines = answer.out.split() if answer.code == 0 else []
    return lines[-1] if lines and Version.parse(lines[-1]) else None


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


def _foreign(
    path: Path, node: Node | None, origin: Origin, places: Places, environ: Mapping[str, str]
) -> Gemini:
    known = recall(places, path, max_age=_FOREIGN_AGE)
    gemini = Gemini(entry=path, version=None, origin=origin, node=node, release=release_of(None))
    if known is None:
        known = remember(places, path, probe_version(gemini.command(places), places, environ))
    return msgspec.structs.replace(gemini, version=known.version, release=release_of(known.version))


def _package_around(file: Path) -> Package | None:
    # The script is one or two folders deep in its package (bundle/gemini.js, dist/src/gemini.js).
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
