"""Compare shell commands with allowed and denied commands, and recognise build files."""

from __future__ import annotations

import os
import re

__all__ = ["allowed_begin", "build_file_pattern", "denied_begin", "is_build_file"]

# With these characters, a command can run another command, write a file or insert other text.
# Quotes and `~` are harmless.
_META = frozenset("\n\r\0;&|<>$`(){}*?[]!#\\")
_PARTS = re.compile(r"[;&|\n\r(){}`'\"]+|\$\(")

# The build files of core/src/utils/buildFileUtils.ts of Gemini CLI (0.61.0).
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
    """Return the first entry of `allowed` whose words are the first words of `command`.

    Return None if no entry matches, or if `command` contains a character with which it could run
    another command or write a file.

    >>> allowed_begin("git status --short", ("git status",)), allowed_begin("git status; rm x", ("git status",))
    ('git status', None)
    """
    if not _META.isdisjoint(command):
        return None
    words = command.split()
    return next((begin for begin in allowed if words[: len(begin.split())] == begin.split()), None)


def denied_begin(command: str, denied: tuple[str, ...]) -> str | None:
    """Return the first entry of `denied` that matches the start of a part of the command, or None.

    The parts of a command are separated by characters such as `;`, `|` and quotes. The function may
    match a harmless command, because it also checks text in quotes. In the example, `rm` also
    matches `/bin/rm`, and `-r` also matches `-rf`.

    >>> denied_begin("ls && /bin/rm -rf x", ("rm -r",)), denied_begin("rmdir x", ("rm",))
    ('rm -r', None)
    """
    parts = [part.split() for part in _PARTS.split(command)]
    return next((begin for begin in denied if any(_begins(part, begin.split()) for part in parts)), None)


def _begins(words: list[str], begin: list[str]) -> bool:
    if len(words) < len(begin) or not begin:
        return False
    first, *rest = words[: len(begin)]
    compared = [first if "/" in begin[0] else first.rsplit("/", 1)[-1], *rest]
    # The entry `rm -r` also matches the command `rm -rf`.
    last = compared[-1] == begin[-1] or (begin[-1].startswith("-") and compared[-1].startswith(begin[-1]))
    return compared[:-1] == begin[:-1] and last


def is_build_file(path: str) -> bool:
    """Whether Gemini CLI 0.61 and newer asks for permission before it writes this file.

    For such a file, the CLI asks even if a policy rule allows the write.

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
    """Return a regular expression that matches the arguments of tool calls that write a build file.

    `is_build_file` says which files are build files. The expression contains no repeated group,
    because the CLI's policy engine refuses expressions with repeated groups.
    """
    names = "|".join(map(re.escape, sorted(_BUILD_FILES)))
    ends = "|".join("".join(f"[{c}{c.upper()}]" for c in end) for end in _BUILD_ENDS)
    return rf'"file_path":"(?:|[^"]*[/\\])(?:{names}|(?:Docker|Container)file\.[^"]*|[^"]*(?:{ends}))"'
