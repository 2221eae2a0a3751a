"""The configuration files: where they are, and what stands in them at which line."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = [
    "PROJECT_FILE",
    "SECTION",
    "ConfigFile",
    "FileProblem",
    "find_project_file",
    "read_config",
    "user_file",
]

PROJECT_FILE = "geminids.toml"
SECTION = "gemini"

_BIGGEST = 1024 * 1024
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$| \(at end of document\)$")

_KEY = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_STATEMENT = re.compile(rf"\s*(\[{{0,2}})\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*(?:=|\]\]?\s*(?:#|$))")
_LONG_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}', re.DOTALL)


class FileProblem(Exception):
    """A file that cannot be read. `where` is its path, with the line where that is known."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what


class ConfigFile(msgspec.Struct, frozen=True):
    """What a file says. `lines` has the line of each key that stands by itself."""

    path: str
    values: dict[str, Any]
    lines: dict[tuple[str, ...], int]

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    def where(self, *keys: str) -> str:
        """The path and line of a key; else of the first within it, or of the nearest that it stands within."""
        for size in range(len(keys), 0, -1):
            within = [line for known, line in self.lines.items() if known[:size] == keys[:size]]
            if within:
                return f"{self.path}:{min(within)}"
        return self.path


def user_file(environ: Mapping[str, str]) -> str:
    """The user's own file: `GEMINIDS_CONFIG`, or config.toml in the platform's folder for that."""
    if named := environ.get("GEMINIDS_CONFIG"):
        return os.path.abspath(named)
    if not sys.platform.startswith("linux"):
        from platformdirs import user_config_path

        return str(user_config_path("geminids", appauthor=False) / "config.toml")
    # What platformdirs does on Linux: importing it takes 18 ms, and every run comes through here.
    base = environ.get("XDG_CONFIG_HOME", "").strip()
    if not os.path.isabs(base):
        base = os.path.join(_home(environ), ".config")
    return os.path.join(base, "geminids", "config.toml")


def find_project_file(cwd: str, environ: Mapping[str, str]) -> str | None:
    """The nearest `geminids.toml`, up to the repository's root or the home folder.

    Where neither is above, only the folder itself counts: `/tmp` is not ours.
    """
    start = folder = os.path.realpath(cwd)
    home = os.path.realpath(_home(environ))
    found: str | None = None
    while True:
        if found is None and os.path.lexists(os.path.join(folder, PROJECT_FILE)):
            found = os.path.join(folder, PROJECT_FILE)
        if folder == home or os.path.lexists(os.path.join(folder, ".git")):
            return found
        above = os.path.dirname(folder)
        if above == folder:
            return found if found and os.path.dirname(found) == start else None
        folder = above


def read_config(path: str) -> ConfigFile | None:
    """What stands in a file, or None where there is none; raises `FileProblem`."""
    data = _read(path)
    if data is None:
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileProblem(f"{path}:{line}", "is not UTF-8") from None
    if not text.strip():
        return ConfigFile(path, {}, {})
    import tomllib  # imported late: most runs have no file

    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        said = str(error)
        at = _AT_LINE.search(said)
        where = f"{path}:{at[1]}" if at and at[1] else path
        raise FileProblem(where, f"is not TOML: {_AT_LINE.sub('', said)}") from None
    return ConfigFile(path, values, _key_lines(text))


def _key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line, from 1, of every table and every key that begins a line: no TOML reader reports it."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    text = _LONG_STRING.sub(lambda string: "\n" * string[0].count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        if match := _STATEMENT.match(line):
            keys = tuple(part.strip("\"'") for part in re.findall(_KEY, match[2]))
            if match[1]:
                table = keys
            found.setdefault(keys if match[1] else (*table, *keys), number)
    return found


def _read(path: str) -> bytes | None:
    try:
        # Non-blocking: a FIFO of that name must not hold us.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FileProblem(path, f"cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if path == os.devnull:
            return b""
        if stat.S_ISDIR(found.st_mode):
            raise FileProblem(path, "is a folder, not a file")
        if not stat.S_ISREG(found.st_mode):
            raise FileProblem(path, "is no regular file")
        if found.st_size > _BIGGEST:
            raise FileProblem(path, f"has {found.st_size / 1e6:.1f} MB; more than 1 MB is no configuration")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_BIGGEST)
    finally:
        os.close(descriptor)


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")
