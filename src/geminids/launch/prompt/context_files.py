"""The texts of a workspace (GEMINI.md): the model reads them, so none may bring in a file from outside the folder."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["TextProblem", "check_texts", "text_names"]

# As many folders as the CLI itself looks through for texts at a start (memoryDiscovery.ts, MAX_DIRECTORIES).
_MOST_FOLDERS = 200
_PASSED_OVER = (".git", "node_modules")
_BIGGEST = 4 * 1024 * 1024
# `@path` in a text brings in a file (memoryImportProcessor.ts), and what that one names too, five deep.
_IMPORT = r"(?:^|(?<=\s))@(\S+)"
_DEEPEST = 6


class TextProblem(Exception):
    """A text that would bring in something from elsewhere."""


def text_names(settings: dict[str, Any]) -> tuple[str, ...]:
    """What the CLI takes for a text, by the user's own settings.

    >>> text_names({"context": {"fileName": ["AGENTS.md", "GEMINI.md"]}})
    ('AGENTS.md', 'GEMINI.md')
    """
    context = settings.get("context")
    named = context.get("fileName") if isinstance(context, dict) else None
    names = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    return tuple(name for name in names if isinstance(name, str) and name) or ("GEMINI.md",)


def check_texts(folder: str, names: Sequence[str], *, further: Sequence[str] = ()) -> None:
    """Look at the texts above (to where `.git` lies), in and below a folder; raises `TextProblem`.

    `further` are folders beside it that the run has.
    """
    above = _up_to_git(os.path.realpath(folder))
    root = above[-1]
    for place in above:
        for name in names:
            _check(os.path.join(place, name), root, _DEEPEST)
    for place in map(os.path.realpath, further):
        for name in names:
            _check(os.path.join(place, name), place, _DEEPEST)
    for place in _below(above[0]):
        for name in names:
            _check(os.path.join(place, name), root, _DEEPEST)


def _up_to_git(folder: str) -> list[str]:
    """The folder and those above it that belong to the same repository; the folder alone where there is none."""
    above = [folder]
    while not os.path.lexists(os.path.join(above[-1], ".git")):
        parent = os.path.dirname(above[-1])
        if parent == above[-1]:
            return [folder]
        above.append(parent)
    return above


def _below(folder: str) -> Iterator[str]:
    """Folders below, the nearest first; a link to a folder is not followed, which the CLI does not do either."""
    queue = [folder]
    for place in queue:
        try:
            with os.scandir(place) as entries:
                found = [entry.path for entry in entries if _is_folder(entry)]
        except OSError:
            continue
        yield from found[: _MOST_FOLDERS - len(queue) + 1]
        queue += found
        if len(queue) > _MOST_FOLDERS:
            return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.name not in _PASSED_OVER and entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _check(file: str, root: str, depth: int) -> None:
    try:
        seen = os.stat(file)
    except OSError:
        return  # none there, or a link to nowhere: nobody can read it
    real = os.path.realpath(file)
    if not _is_in(real, root):
        raise TextProblem(f"{file} is a link that leads out of the folder, to {real}")
    if stat.S_ISFIFO(seen.st_mode) or stat.S_ISCHR(seen.st_mode):
        raise TextProblem(f"{file} is no regular file")
    if stat.S_ISREG(seen.st_mode) and seen.st_size > _BIGGEST:
        raise TextProblem(f"{file} has {seen.st_size:,} bytes, too many to look for what it brings in")
    if depth and stat.S_ISREG(seen.st_mode):
        for named in _imports(file):
            # What is plainly elsewhere the CLI refuses by itself; a link it follows (before 0.61).
            path = os.path.normpath(os.path.join(os.path.dirname(file), named))
            if _is_in(path, root):
                _check(path, root, depth - 1)


def _imports(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8", errors="replace") as text:
            return list(dict.fromkeys(re.findall(_IMPORT, text.read())))
    except (OSError, ValueError):
        return []


def _is_in(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)
