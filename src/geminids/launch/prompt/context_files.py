"""Check that the context files (GEMINI.md) of a workspace include no file from outside it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["ContextFileProblem", "check_context_files", "context_file_names"]

# The CLI searches the same number of folders for context files at start (memoryDiscovery.ts,
# MAX_DIRECTORIES).
_MOST_FOLDERS = 200
_SKIPPED = (".git", "node_modules")
_BIGGEST = 4 * 1024 * 1024
# `@path` in a context file includes a file (memoryImportProcessor.ts), recursively up to five
# levels.
_IMPORT = r"(?:^|(?<=\s))@(\S+)"
_DEEPEST = 6


class ContextFileProblem(Exception):
    """A context file would include a file from elsewhere, or cannot be checked."""


def context_file_names(settings: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of context files, from the user's settings.

    >>> context_file_names({"context": {"fileName": ["AGENTS.md", "GEMINI.md"]}})
    ('AGENTS.md', 'GEMINI.md')
    """
    context = settings.get("context")
    setting = context.get("fileName") if isinstance(context, dict) else None
    names = [setting] if isinstance(setting, str) else setting if isinstance(setting, list) else []
    return tuple(name for name in names if isinstance(name, str) and name) or ("GEMINI.md",)


def check_context_files(folder: str, names: Sequence[str], *, further: Sequence[str] = ()) -> None:
    """Check the context files in, below and above a folder; raises `ContextFileProblem`.

    The search upwards ends at `.git`. `further` are more folders that the run may use.
    """
    above = _up_to_git(os.path.realpath(folder))
    root = above[-1]
    for parent in above:
        for name in names:
            _check(os.path.join(parent, name), root, _DEEPEST)
    for other in map(os.path.realpath, further):
        for name in names:
            _check(os.path.join(other, name), other, _DEEPEST)
    for child in _below(above[0]):
        for name in names:
            _check(os.path.join(child, name), root, _DEEPEST)


def _up_to_git(folder: str) -> list[str]:
    """Return the folder and its parents in the same repository, if there is one."""
    above = [folder]
    while not os.path.lexists(os.path.join(above[-1], ".git")):
        parent = os.path.dirname(above[-1])
        if parent == above[-1]:
            return [folder]
        above.append(parent)
    return above


def _below(folder: str) -> Iterator[str]:
    """Yield the folders below, the nearest first.

    Do not follow links to folders; the CLI does not either.
    """
    queue = [folder]
    for parent in queue:
        try:
            with os.scandir(parent) as entries:
                children = [entry.path for entry in entries if _is_folder(entry)]
        except OSError:
            continue
        yield from children[: _MOST_FOLDERS - len(queue) + 1]
        queue += children
        if len(queue) > _MOST_FOLDERS:
            return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _check(file: str, root: str, depth: int) -> None:
    try:
        status = os.stat(file)
    except OSError:
        return  # the file does not exist, or is a broken link
    real = os.path.realpath(file)
    if not _is_in(real, root):
        raise ContextFileProblem(f"{file} is a link to a file outside the folder: {real}")
    if stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode):
        raise ContextFileProblem(f"{file} is not a regular file")
    if stat.S_ISREG(status.st_mode) and status.st_size > _BIGGEST:
        raise ContextFileProblem(
            f"{file} is too large to check which files it includes: {status.st_size:,} bytes"
        )
    if depth and stat.S_ISREG(status.st_mode):
        for imported in _imports(file):
            # The CLI refuses paths outside the folder itself, but before 0.61 it follows links to
            # them.
            path = os.path.normpath(os.path.join(os.path.dirname(file), imported))
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
