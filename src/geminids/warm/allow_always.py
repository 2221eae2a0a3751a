"""What "always" covers for the rest of a chat, and what it does not.

Remembered on our side; the CLI is answered once each time. Its own "always" changes the approval mode of the session
for edits, and for commands it searches all arguments of a call for the allowed words.

Whoever says "always" has seen one call, and the next one may be written by somebody who knows what that was. So a
command covers itself and no other, unless its program does no more with other files than it did with these.
"""

from __future__ import annotations

import os
import re

from geminids.events.model import PermissionAsked
from geminids.launch.permissions.commands import is_build_file

__all__ = ["AllowAlways"]

# A command of plain words: nothing in it that a shell would take for more than these words.
_PLAIN = re.compile(r"[\w ./=:@%+,-]+")
# Programs that read files and print, and those that run the tests of the folder: other files are no other power.
# Not `sort` (-o), `tree` (-o), `uniq` (a second file), `rg` (--pre): their arguments write or run.
_HARMLESS = re.compile(
    r"cat|cmp|cut|diff|egrep|fgrep|file|grep|head|ls|md5sum|nl|sha1sum|sha256sum|stat|tail|wc|mypy|pytest|"
    r"(?P<with_word>git|cargo|go|npm|ruff)"
)
_WORDS = re.compile(
    r"git (blame|diff|log|ls-files|show|status)|cargo (check|clippy|test)|go (test|vet)|npm test|ruff check"
)
# An option that may have the name of a file behind it which is then written.
_OUTPUT = re.compile(r"-[^-]*o.*|--o(?!neline\Z).*")
# What is in such a file is run: by a build, a package manager, an editor, a shell.
_RUN = re.compile(
    r".*\.lock|.*-lock\..*|.*\.gradle(\.kts)?|.*\.(bzl|mk|cmake)|(GNU)?makefile|dockerfile.*|containerfile.*|"
    r"package\.json|pyproject\.toml|setup\.(py|cfg)|conftest\.py|noxfile\.py|tox\.ini|justfile|rakefile|gemfile",
    re.IGNORECASE,
)
_WRITING = ("edit", "write")


class AllowAlways:
    """The things that somebody has allowed for as long as the chat lasts."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def remember(self, asked: PermissionAsked) -> None:
        scope = _scope(asked)
        if scope is not None:
            key, told = scope
            self._given[key] = told

    def covers(self, asked: PermissionAsked) -> str | None:
        """What was allowed before and covers this too; None where nothing does."""
        scope = _scope(asked)
        return self._given.get(scope[0]) if scope is not None else None

    @staticmethod
    def meaning(asked: PermissionAsked) -> str | None:
        """What an "always" would cover, in words; None where it covers nothing."""
        scope = _scope(asked)
        return scope[1] if scope is not None else None


def _scope(asked: PermissionAsked) -> tuple[str, str] | None:
    """The one key under which an "always" is kept, and what it covers."""
    if asked.command is not None:
        # Where a command runs is a part of what it does.
        return _command(asked.command.strip(), asked.cwd) if asked.cwd is not None else None
    if asked.kind in _WRITING:
        return _files(asked)
    return f"tool {asked.tool}", f"calls of {asked.tool}"


def _command(command: str, folder: str) -> tuple[str, str]:
    begin, rest = _begin(command)
    options = sorted(word for word in rest if word.startswith("-"))
    others = [word for word in rest if not word.startswith("-")]
    alike = (
        begin and not any(map(_OUTPUT.fullmatch, options)) and all(_is_here(word, folder) for word in others)
    )
    if not alike:
        return f"command {folder}\0{command}", "this very command"
    shown = " ".join((begin, *options))
    return f"begin {folder}\0{shown}", f"`{shown}` with other files of this folder"


def _begin(command: str) -> tuple[str, list[str]]:
    """The program, with its subcommand where it has any, and its arguments; "" for one that could do anything."""
    if _PLAIN.fullmatch(command) is None:
        return "", []
    program, *rest = command.split()
    found = _HARMLESS.fullmatch(program)
    if found is None or not found["with_word"]:
        return (program, rest) if found else ("", [])
    # `git status` is not meant for `git push`, nor for `git -c core.pager=x status`.
    begin = " ".join((program, *rest[:1]))
    return (begin, rest[1:]) if _WORDS.fullmatch(begin) else ("", [])


def _is_here(word: str, folder: str) -> bool:
    """Whether an argument, taken for a path, stays in the folder."""
    return "=" not in word and ":" not in word and not os.path.isabs(word) and _real(word, folder) is not None


def _files(asked: PermissionAsked) -> tuple[str, str] | None:
    named = (*asked.paths, *(change.path for change in asked.changes))
    if not named or asked.cwd is None:
        return None
    inside = [_real(path, asked.cwd) for path in named]
    if all(path is not None and not _is_run(path) for path in inside):
        return f"files {asked.cwd}", "edits of files in this folder, hidden and build files aside"
    try:
        real = sorted({os.path.realpath(os.path.join(asked.cwd, path)) for path in named})
    except (ValueError, OSError):
        return None
    return "\0".join(("file", *real)), f"edits of {', '.join(map(os.path.basename, real))}"


def _real(path: str, folder: str) -> str | None:
    """Where a path leads, from the folder on; None where it leads out of it."""
    try:
        root = os.path.realpath(folder)
        real = os.path.realpath(os.path.join(root, path))
        return os.path.relpath(real, root) if os.path.commonpath((real, root)) == root else None
    except (ValueError, OSError):
        return None  # a NUL in it, or another drive


def _is_run(path: str) -> bool:
    """Whether what is written there may be run later, asked by nobody: `.git/hooks/...`, `Makefile`."""
    parts = path.split(os.sep)
    hidden = any(part.startswith(".") for part in parts)
    return hidden or is_build_file(path) or _RUN.fullmatch(parts[-1]) is not None
