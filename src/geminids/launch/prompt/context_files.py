"""Check that the context files (GEMINI.md) of a folder include no file from outside its repository.

If the folder is in no Git repository, the context files must include no file from outside the
folder.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["ContextFileProblem", "check_context_files", "context_file_names"]

# When the CLI starts, it searches this number of folders for context files (memoryDiscovery.ts,
# MAX_DIRECTORIES).
_MOST_FOLDERS = 200
_SKIPPED = (".git", "node_modules")
_BIGGEST = 4 * 1024 * 1024
# `@path` in a context file includes another file. That file can include further files in the same
# way, up to five levels (memoryImportProcessor.ts).
_IMPORT = r"(?:^|(?<=\s))@(\S+)"
_DEEPEST = 6


class ContextFileProblem(Exception):
    """A context file would include a file from outside its repository, or cannot be checked."""


def context_file_names(settings: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of context files from the user's settings; by default, only GEMINI.md.

    >>> context_file_names({"context": {"fileName": ["AGENTS.md", "GEMINI.md"]}})
    ('AGENTS.md', 'GEMINI.md')
    """
    context = settings.get("context")
    setting = context.get("fileName") if isinstance(context, dict) else None
    names = [setting] if isinstance(setting, str) else setting if isinstance(setting, list) else []
    return tuple(name for name in names if isinstance(name, str) and name) or ("GEMINI.md",)


def check_context_files(folder: str, names: Sequence[str], *, further: Sequence[str] = ()) -> None:
    """Check that the context files of a folder include no file from outside its repository.

    The function checks the context files in `folder`, in the folders below it, and in the folders
    above it up to the root of its Git repository. If there is no repository, `folder` itself is the
    root. `names` are the names of context files.

    `further` are other folders that the run may use. The context files directly in such a folder
    must include no file from outside that folder.

    Raises `ContextFileProblem` if a context file includes an outside file or cannot be checked.
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
    """Return `folder` and the folders above it, up to the root of its Git repository.

    If `folder` is in no repository, return only `folder`.
    """
    above = [folder]
    while not os.path.lexists(os.path.join(above[-1], ".git")):
        parent = os.path.dirname(above[-1])
        if parent == above[-1]:
            return [folder]
        above.append(parent)
    return above


def _below(folder: str) -> Iterator[str]:
    """Yield at most 200 folders below a folder, the nearest first.

    Links to folders are not followed, because the CLI does not follow them either.
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
            f"{file} has {status.st_size:,} bytes: it is too large to check which files it includes"
        )
    if depth and stat.S_ISREG(status.st_mode):
        for imported in _imports(file):
            # The CLI itself refuses paths outside the folder. But releases before 0.61 follow links
            # that lead outside.
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
