"""Which later calls an "allow always" answer covers, for the rest of a chat.

We remember the answer, and answer the CLI with "allow once" each time. The CLI's own "always" is too broad: for edits
it changes the approval mode of the session, and for commands it searches all arguments of a call for the allowed words.

The user has seen only one call, and an attacker may write the next one to match it. So an allowed command covers only
itself, unless its program is as harmless with other files as with these.
"""

from __future__ import annotations

import os
import re

from geminids.events.model import PermissionAsked
from geminids.launch.permissions.commands import is_build_file

__all__ = ["AllowAlways"]

# A command of plain words, without characters that a shell interprets.
_PLAIN = re.compile(r"[\w ./=:@%+,-]+")
# Programs that only read and print files, or that run the tests of the folder: other files add no risk.
# Not `sort` (-o), `tree` (-o), `uniq` (a second file), `rg` (--pre): their arguments can write or run files.
_HARMLESS = re.compile(
    r"cat|cmp|cut|diff|egrep|fgrep|file|grep|head|ls|md5sum|nl|sha1sum|sha256sum|stat|tail|wc|mypy|pytest|"
    r"(?P<has_subcommand>git|cargo|go|npm|ruff)"
)
_SUBCOMMANDS = re.compile(
    r"git (blame|diff|log|ls-files|show|status)|cargo (check|clippy|test)|go (test|vet)|npm test|ruff check"
)
# An option that may name an output file.
_OUTPUT = re.compile(r"-[^-]*o.*|--o(?!neline\Z).*")
# Files whose content is executed: by a build, a package manager, an editor, a shell.
_EXECUTED = re.compile(
    r".*\.lock|.*-lock\..*|.*\.gradle(\.kts)?|.*\.(bzl|mk|cmake)|(GNU)?makefile|dockerfile.*|containerfile.*|"
    r"package\.json|pyproject\.toml|setup\.(py|cfg)|conftest\.py|noxfile\.py|tox\.ini|justfile|rakefile|gemfile",
    re.IGNORECASE,
)
_WRITING = ("edit", "write")


class AllowAlways:
    """The calls that the user allowed for the rest of the chat."""

    def __init__(self) -> None:
        self._scopes: dict[str, str] = {}

    def remember(self, asked: PermissionAsked) -> None:
        scope = _scope(asked)
        if scope is not None:
            key, text = scope
            self._scopes[key] = text

    def covers(self, asked: PermissionAsked) -> str | None:
        """The text of an earlier "always" that covers this call; None if there is none."""
        scope = _scope(asked)
        return self._scopes.get(scope[0]) if scope is not None else None

    @staticmethod
    def meaning(asked: PermissionAsked) -> str | None:
        """A text that says which calls an "always" would cover; None if it is not possible for this call."""
        scope = _scope(asked)
        return scope[1] if scope is not None else None


def _scope(asked: PermissionAsked) -> tuple[str, str] | None:
    """The key of an "always" for this call, and a text that says which calls it covers."""
    if asked.command is not None:
        # The effect of a command depends on its folder.
        return _command(asked.command.strip(), asked.cwd) if asked.cwd is not None else None
    if asked.kind in _WRITING:
        return _files(asked)
    return f"tool {asked.tool}", f"calls of {asked.tool}"


def _command(command: str, folder: str) -> tuple[str, str]:
    begin, rest = _begin(command)
    options = sorted(word for word in rest if word.startswith("-"))
    others = [word for word in rest if not word.startswith("-")]
    covers_similar = (
        begin
        and not any(map(_OUTPUT.fullmatch, options))
        and all(_is_inside(word, folder) for word in others)
    )
    if not covers_similar:
        return f"command {folder}\0{command}", "this very command"
    shown = " ".join((begin, *options))
    return f"begin {folder}\0{shown}", f"`{shown}` with other files of this folder"


def _begin(command: str) -> tuple[str, list[str]]:
    """The program, with its subcommand if any, and its arguments; "" if the program is not known as harmless."""
    if _PLAIN.fullmatch(command) is None:
        return "", []
    program, *rest = command.split()
    match = _HARMLESS.fullmatch(program)
    if match is None or not match["has_subcommand"]:
        return (program, rest) if match else ("", [])
    # An "always" for `git status` must not cover `git push` or `git -c core.pager=x status`.
    begin = " ".join((program, *rest[:1]))
    return (begin, rest[1:]) if _SUBCOMMANDS.fullmatch(begin) else ("", [])


def _is_inside(word: str, folder: str) -> bool:
    """Whether an argument, read as a path, stays in the folder."""
    return (
        "=" not in word and ":" not in word and not os.path.isabs(word) and _resolve(word, folder) is not None
    )


def _files(asked: PermissionAsked) -> tuple[str, str] | None:
    named = (*asked.paths, *(change.path for change in asked.changes))
    if not named or asked.cwd is None:
        return None
    inside = [_resolve(path, asked.cwd) for path in named]
    if all(path is not None and not _is_executed(path) for path in inside):
        return f"files {asked.cwd}", "edits of files in this folder, hidden and build files aside"
    try:
        real = sorted({os.path.realpath(os.path.join(asked.cwd, path)) for path in named})
    except (ValueError, OSError):
        return None
    return "\0".join(("file", *real)), f"edits of {', '.join(map(os.path.basename, real))}"


def _resolve(path: str, folder: str) -> str | None:
    """The resolved path, relative to the folder; None if it leads out of it."""
    try:
        root = os.path.realpath(folder)
        real = os.path.realpath(os.path.join(root, path))
        return os.path.relpath(real, root) if os.path.commonpath((real, root)) == root else None
    except (ValueError, OSError):
        return None  # a NUL in it, or another drive


def _is_executed(path: str) -> bool:
    """Whether the file may be executed later without a question: `.git/hooks/...`, `Makefile`."""
    parts = path.split(os.sep)
    hidden = any(part.startswith(".") for part in parts)
    return hidden or is_build_file(path) or _EXECUTED.fullmatch(parts[-1]) is not None
