"""Shell commands as permissions see them: whether one is simple, how it begins, and which files are build files."""

from __future__ import annotations

import os
import re

__all__ = ["allowed_begin", "build_file_pattern", "denied_begin", "is_build_file"]

# What can make two commands of one, or a file, or another text of it: quotes and `~` are harmless.
_META = frozenset("\n\r\0;&|<>$`(){}*?[]!#\\")
_PARTS = re.compile(r"[;&|\n\r(){}`'\"]+|\$\(")

# core/src/utils/buildFileUtils.ts (0.61.0).
# fmt: off
_BUILD_FILES = frozenset((
    "BUILD", "BUILD.bazel", "WORKSPACE", "WORKSPACE.bazel", "MODULE.bazel", ".bazelrc", ".blazerc",
    "Makefile", "makefile", "GNUmakefile", "CMakeLists.txt", "package.json", "package-lock.json",
    "pnpm-lock.yaml", "yarn.lock", "bun.lockb", "setup.py", "setup.cfg", "pyproject.toml", "go.mod",
    "go.sum", "Cargo.toml", "Cargo.lock", "pom.xml", "build.gradle", "build.gradle.kts",
    "settings.gradle", "settings.gradle.kts", "Dockerfile", "Containerfile",
))
# fmt: on
_BUILD_ENDS = (".bzl", ".bazel", ".bzlmod", ".mk", ".cmake")


def allowed_begin(command: str, allowed: tuple[str, ...]) -> str | None:
    """The one of these that a simple command begins with, word by word; none for what a shell takes apart.

    >>> allowed_begin("git status --short", ("git status",)), allowed_begin("git status; rm x", ("git status",))
    ('git status', None)
    """
    if not _META.isdisjoint(command):
        return None
    words = command.split()
    return next((begin for begin in allowed if words[: len(begin.split())] == begin.split()), None)


def denied_begin(command: str, denied: tuple[str, ...]) -> str | None:
    """The one of these that a part of the command begins with, by its path too; rather one too many than one too few.

    >>> denied_begin("ls && /bin/rm -rf x", ("rm -r",)), denied_begin("rmdir x", ("rm",))
    ('rm -r', None)
    """
    parts = [part.split() for part in _PARTS.split(command)]
    return next((begin for begin in denied if any(_begins(part, begin.split()) for part in parts)), None)


def _begins(words: list[str], begin: list[str]) -> bool:
    if len(words) < len(begin) or not begin:
        return False
    first, *rest = words[: len(begin)]
    found = [first if "/" in begin[0] else first.rsplit("/", 1)[-1], *rest]
    # `rm -r` is meant for `rm -rf` too.
    last = found[-1] == begin[-1] or (begin[-1].startswith("-") and found[-1].startswith(begin[-1]))
    return found[:-1] == begin[:-1] and last


def is_build_file(path: str) -> bool:
    """Whether the CLI asks about a write to this file whatever the rules say (0.61 and newer).

    >>> is_build_file("a/pyproject.toml"), is_build_file("a/notes.txt")
    (True, False)
    """
    name = os.path.basename(path.replace("\\", "/"))
    return (
        name in _BUILD_FILES
        or name.startswith(("Dockerfile.", "Containerfile."))
        or os.path.splitext(name)[1].lower() in _BUILD_ENDS
    )


def build_file_pattern() -> str:
    """The same as a regular expression on a call's arguments; the engine takes no group that is repeated."""
    names = "|".join(map(re.escape, sorted(_BUILD_FILES)))
    ends = "|".join("".join(f"[{c}{c.upper()}]" for c in end) for end in _BUILD_ENDS)
    return rf'"file_path":"(?:|[^"]*[/\\])(?:{names}|(?:Docker|Container)file\.[^"]*|[^"]*(?:{ends}))"'
