"""Find and read the configuration files, and remember the line number of each key."""

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
    """Raised if a configuration file cannot be read.

    `where` is the path of the file, with a line number if the line is known.
    """

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class ConfigFile(msgspec.Struct, frozen=True):
    """The parsed contents of a configuration file.

    `lines` maps the path of a key, such as `("gemini", "model")`, to its line number.
    """

    path: str
    values: dict[str, Any]
    lines: dict[tuple[str, ...], int]

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    def line_of(self, *keys: str) -> int | None:
        """Return the line number of a key, for example `line_of("gemini", "model")`.

        If the line of the key is unknown, return the line of the innermost table that contains the
        key and whose line is known. Return None if there is no such table. The line of a table is
        the first known line of the table or of a key inside it.
        """
        for size in range(len(keys), 0, -1):
            inside = [line for known, line in self.lines.items() if known[:size] == keys[:size]]
            if inside:
                return min(inside)
        return None

    def where(self, *keys: str) -> str:
        """Return `path:line` for a key, or only the path if the line is unknown."""
        line = self.line_of(*keys)
        return self.path if line is None else f"{self.path}:{line}"


def user_file(environ: Mapping[str, str]) -> str:
    """Return the path of the user's configuration file.

    This is the value of the variable `GEMINIDS_CONFIG` or, if it is not set, the path of
    config.toml in the platform's folder for configuration.
    """
    if path := environ.get("GEMINIDS_CONFIG"):
        return os.path.abspath(path)
    if not sys.platform.startswith("linux"):
        from platformdirs import user_config_path  # imported late: it takes 18 ms

        return str(user_config_path("geminids", appauthor=False) / "config.toml")
    # On Linux, compute the path that platformdirs returns. Importing it takes 18 ms, and every run
    # needs this path.
    base = environ.get("XDG_CONFIG_HOME", "").strip()
    if not os.path.isabs(base):
        base = os.path.join(_home(environ), ".config")
    return os.path.join(base, "geminids", "config.toml")


def find_project_file(cwd: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of the nearest `geminids.toml` in `cwd` and its parents; None if there is
    none.

    The search stops at the root of the repository or at the home folder. If `cwd` is neither in a
    repository nor in the home folder, only `cwd` itself is searched. The reason is that other users
    may be able to write to a parent folder such as `/tmp`.
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
    """Read and parse a configuration file. Return None if the file does not exist.

    Raises `FileProblem` if the file cannot be read or is not valid TOML.
    """
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
    import tomllib  # imported late: most runs have no configuration file

    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        message = str(error)
        at = _AT_LINE.search(message)
        where = f"{path}:{at[1]}" if at and at[1] else path
        raise FileProblem(where, f"is not valid TOML: {_AT_LINE.sub('', message)}") from None
    return ConfigFile(path, values, _key_lines(text))


def _key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line number of each table, and of each key at the start of a line.

    This is needed because `tomllib` does not report line numbers.
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
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
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
