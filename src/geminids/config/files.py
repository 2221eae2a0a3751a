"""Find and read the configuration files, with the line of each key."""

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
    """A file cannot be read. `where` is its path, with the line if it is known."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class ConfigFile(msgspec.Struct, frozen=True):
    """The contents of a file. `lines` has the line of each key that starts a line."""

    path: str
    values: dict[str, Any]
    lines: dict[tuple[str, ...], int]

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    def where(self, *keys: str) -> str:
        """Return the path and line of a key, of a key inside it, or of the table around it."""
        for size in range(len(keys), 0, -1):
            inside = [line for known, line in self.lines.items() if known[:size] == keys[:size]]
            if inside:
                return f"{self.path}:{min(inside)}"
        return self.path


def user_file(environ: Mapping[str, str]) -> str:
    """Return the user's file: `GEMINIDS_CONFIG`, or config.toml in the platform's folder."""
    if path := environ.get("GEMINIDS_CONFIG"):
        return os.path.abspath(path)
    if not sys.platform.startswith("linux"):
        from platformdirs import user_config_path

        return str(user_config_path("geminids", appauthor=False) / "config.toml")
    # The same as platformdirs on Linux. Its import takes 18 ms, and every run needs this path.
    base = environ.get("XDG_CONFIG_HOME", "").strip()
    if not os.path.isabs(base):
        base = os.path.join(_home(environ), ".config")
    return os.path.join(base, "geminids", "config.toml")


def find_project_file(cwd: str, environ: Mapping[str, str]) -> str | None:
    """Return the nearest `geminids.toml`, up to the repository's root or the home folder.

    Outside a repository and the home, use only the folder itself: others can write to `/tmp`.
    """
    start = folder = os.path.realpath(cwd)
    home = os.path.realpath(_home(environ))
    file: str | None = None
    while True:
        if file is None and os.path.lexists(os.path.join(folder, PROJECT_FILE)):
            file = os.path.join(folder, PROJECT_FILE)
        if folder == home or os.path.lexists(os.path.join(folder, ".git")):
            return file
        parent = os.path.dirname(folder)
        if parent == folder:
            return file if file and os.path.dirname(file) == start else None
        folder = parent


def read_config(path: str) -> ConfigFile | None:
    """Read a file; None if it does not exist. Raises `FileProblem`."""
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
        message = str(error)
        at = _AT_LINE.search(message)
        where = f"{path}:{at[1]}" if at and at[1] else path
        raise FileProblem(where, f"is not valid TOML: {_AT_LINE.sub('', message)}") from None
    return ConfigFile(path, values, _key_lines(text))


def _key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line number of every table and of every key that starts a line.

    TOML parsers do not report it.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    text = _LONG_STRING.sub(lambda string: "\n" * string[0].count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        if match := _STATEMENT.match(line):
            keys = tuple(part.strip("\"'") for part in re.findall(_KEY, match[2]))
            if match[1]:
                table = keys
            lines.setdefault(keys if match[1] else (*table, *keys), number)
    return lines


def _read(path: str) -> bytes | None:
    try:
        # Do not block if it is a FIFO.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FileProblem(path, f"cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if path == os.devnull:
            return b""
        if stat.S_ISDIR(status.st_mode):
            raise FileProblem(path, "is a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise FileProblem(path, "is not a regular file")
        if status.st_size > _BIGGEST:
            problem = f"is too large: {status.st_size / 1e6:.1f} MB; a configuration file has at most 1 MB"
            raise FileProblem(path, problem)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_BIGGEST)
    finally:
        os.close(descriptor)


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")
