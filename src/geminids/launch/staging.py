"""Where files are put so that the CLI reads them: beside the working folder where it can be, in it where it must."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from geminids.launch.prompt import PromptProblem
from geminids.launch.scratch import Scratch

__all__ = ["Staging", "hiding_pattern", "staging_for"]

_ESCAPED = " '&#$;"
_SAFE = "/._-+=:%@~"


class Staging(msgspec.Struct, frozen=True):
    """A folder, how its files are named after `@`, and the flags that open it to the CLI."""

    folder: Path
    spoken: str
    flags: tuple[str, ...]


def staging_for(scratch: Scratch, cwd: str, names: Sequence[str]) -> Staging:
    """Make a folder for files of these names; raises OSError, or `PromptProblem` where the CLI would not read it."""
    for folder in _outside(scratch, cwd):
        spoken = _spoken(str(folder))
        if spoken is not None:
            return Staging(folder, spoken, (f"--include-directories={folder}",))
    return _inside(scratch, Path(cwd), names)


def _outside(scratch: Scratch, cwd: str) -> Iterable[Path]:
    """Folders outside `cwd`: in it the user's ignore files would hide them. Not the whole scratch folder, which
    holds the policies: what the CLI is shown, the agent may write."""
    if not _within(str(scratch.folder), cwd) and _spoken(str(scratch.folder)) is not None:
        folder = scratch.folder / "media"
        folder.mkdir(mode=0o700)
        yield folder
    import tempfile

    shared = tempfile.gettempdir()
    if not _within(shared, cwd) and _spoken(shared) is not None:
        yield scratch.folder_in(Path(shared))


def _within(path: str, folder: str) -> bool:
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath((path, folder)) == folder


def _spoken(path: str) -> str | None:
    """A path as it is written after `@`, None where no release would read it back (atCommandProcessor.ts)."""
    for char in path:
        if not (char.isalnum() or char in _SAFE or char in _ESCAPED):
            return None  # a comma also ends a value of --include-directories, and brackets are patterns
    return "".join("\\" + char if char in _ESCAPED else char for char in path)


def _inside(scratch: Scratch, cwd: Path, names: Sequence[str]) -> Staging:
    rules = _rules(cwd, ".gitignore", ".git/info/exclude") if _in_repository(cwd) else []
    shut = _rules(cwd, ".geminiignore")
    for hidden in (True, False):
        name = scratch.name_in(hidden=hidden)
        by = hiding_pattern(rules, [name]) or hiding_pattern(shut, [name, *names])
        if by is None:
            folder = scratch.folder_in(cwd, hidden=hidden)
            # The user's `*.png` does not count in here.
            (folder / ".gitignore").write_text("!*\n")
            return Staging(folder, name, ())
    raise PromptProblem(
        f"files can be staged only below {cwd}, and {by} there hides them from Gemini CLI",
        "Use another folder, or name one outside it with TMPDIR.",
        "bad_option",
    )


def _in_repository(cwd: Path) -> bool:
    return any((folder / ".git").exists() for folder in (cwd, *cwd.parents))


def _rules(cwd: Path, *files: str) -> list[tuple[str, str]]:
    found = []
    for file in files:
        try:
            text = (cwd / file).read_text("utf-8", "replace")
        except OSError:
            continue
        found += [(file, line.strip()) for line in text.splitlines()]
    return [(file, line) for file, line in found if line and not line.startswith(("#", "!"))]


def hiding_pattern(rules: Iterable[tuple[str, str]], names: Sequence[str]) -> str | None:
    """The first rule that could hide one of these names. Exceptions (`!name`) are not believed: who is wrong here
    says no, and the user is told; else a file would be dropped in silence.

    >>> hiding_pattern([(".gitignore", "*.png"), (".gitignore", "/.*/")], [".geminids-1"])
    "'/.*/' of .gitignore"
    """
    import fnmatch

    for file, rule in rules:
        words = [word for word in rule.split("/") if word and word != "**"] or ["*"]
        if any(fnmatch.fnmatchcase(name, word) for name in names for word in words):
            return f"{rule!r} of {file}"
    return None
