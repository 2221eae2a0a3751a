"""Decide which later calls an "allow always" answer covers, for the rest of a chat.

We store the answer ourselves, and answer each covered call with "allow once". The CLI's own
"always" allows too much: for edits, it changes the approval mode of the session; for commands, it
searches all arguments of a call for the allowed words.

The user has seen only one call, and an attacker may write the next call so that it matches. So an
allowed command covers only the same command.

There is one exception: programs that are harmless with every file of the folder in which they run.
For such a program, the answer also covers commands with the same options and other files of this
folder.
"""

from __future__ import annotations

import os
import re

from geminids.events.model import PermissionAsked
from geminids.launch.permissions.commands import is_build_file

__all__ = ["AllowAlways"]

# A command that has only plain words, and no characters that a shell interprets.
_PLAIN = re.compile(r"[\w ./=:@%+,-]+")
# Programs that only read and print files, or that run the tests of the folder. They are not more
# dangerous with other files of the folder. `sort` (-o), `tree` (-o), `uniq` (a second file) and
# `rg` (--pre) are not in this list, because their arguments can write or run files.
_HARMLESS = re.compile(
    r"cat|cmp|cut|diff|egrep|fgrep|file|grep|head|ls|md5sum|nl|sha1sum|sha256sum|stat|tail|wc|mypy|pytest|"
    r"(?P<has_subcommand>git|cargo|go|npm|ruff)"
)
_SUBCOMMANDS = re.compile(
    r"git (blame|diff|log|ls-files|show|status)|cargo (check|clippy|test)|go (test|vet)|npm test|ruff check"
)
# An option of a command that may name an output file.
_OUTPUT = re.compile(r"-[^-]*o.*|--o(?!neline\Z).*")
# Files whose content a build, a package manager, an editor or a shell executes.
_EXECUTED = re.compile(
    r".*\.lock|.*-lock\..*|.*\.gradle(\.kts)?|.*\.(bzl|mk|cmake)|(GNU)?makefile|dockerfile.*|containerfile.*|"
    r"package\.json|pyproject\.toml|setup\.(py|cfg)|conftest\.py|noxfile\.py|tox\.ini|justfile|rakefile|gemfile",
    re.IGNORECASE,
)
_WRITING = ("edit", "write")


class AllowAlways:
    """The calls that the user has allowed for the rest of the chat."""

    def __init__(self) -> None:
        self._scopes: dict[str, str] = {}

    def remember(self, asked: PermissionAsked) -> None:
        scope = _scope(asked)
        if scope is not None:
            key, text = scope
            self._scopes[key] = text

    def covers(self, asked: PermissionAsked) -> str | None:
        """Return the description of an earlier "allow always" answer that covers this call.

        Return None if no answer covers the call.
        """
        scope = _scope(asked)
        return self._scopes.get(scope[0]) if scope is not None else None

    @staticmethod
    def meaning(asked: PermissionAsked) -> str | None:
        """Describe the calls that an "allow always" answer to this call would cover.

        Return None if "allow always" is not possible for this call.
        """
        scope = _scope(asked)
        return scope[1] if scope is not None else None


def _scope(asked: PermissionAsked) -> tuple[str, str] | None:
    """Return a key and a description of the calls that an "allow always" answer to this call
    covers.

    All covered calls have the same key. Return None if "allow always" is not possible for this
    call.
    """
    if asked.command is not None:
        # What a command does depends on its folder, so the folder is a part of the key.
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
    """Split a command into its program (with a subcommand, if it has one) and its arguments.

    If the program is not known to be harmless, return "" and an empty list.
    """
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
    """Whether an argument, read as a relative path, leads to a place in the folder.

    Return False if the argument contains `=` or `:`, or is an absolute path.
    """
    return (
        "=" not in word and ":" not in word and not os.path.isabs(word) and _resolve(word, folder) is not None
    )


def _files(asked: PermissionAsked) -> tuple[str, str] | None:
    named = (*asked.paths, *(change.path for change in asked.changes))
    if not named or asked.cwd is None:
        return None
    inside = [_resolve(path, asked.cwd) for path in named]
    if all(path is not None and not _is_executed(path) for path in inside):
        return f"files {asked.cwd}", "edits of files in this folder, except hidden and build files"
    try:
        real = sorted({os.path.realpath(os.path.join(asked.cwd, path)) for path in named})
    except (ValueError, OSError):
        return None
    return "\0".join(("file", *real)), f"edits of {', '.join(map(os.path.basename, real))}"


def _resolve(path: str, folder: str) -> str | None:
    """Return `path` relative to `folder`, with symbolic links resolved.

    Return None if the path leads outside the folder, or cannot be resolved.
    """
    try:
        root = os.path.realpath(folder)
        real = os.path.realpath(os.path.join(root, path))
        return os.path.relpath(real, root) if os.path.commonpath((real, root)) == root else None
    except (ValueError, OSError):
        return None  # the path contains a NUL, or is on another drive


def _is_executed(path: str) -> bool:
    """Whether a program may later execute the file without permission, such as a hook or a
    `Makefile`.
    """
    parts = path.split(os.sep)
    hidden = any(part.startswith(".") for part in parts)
    return hidden or is_build_file(path) or _EXECUTED.fullmatch(parts[-1]) is not None
