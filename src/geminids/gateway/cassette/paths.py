"""Find the folders that the CLI mentions in a request, and replace their paths in texts. This
module does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["PathReplacer", "folders_in", "folders_in_context", "is_context"]

# The beginning of the context text (folders, date, instructions) that the CLI puts before every
# conversation (environmentContext.ts). CLI releases up to 0.32 send it without the tag
# `<session_context>`.
_CONTEXT = "This is the Gemini CLI. We are setting up the context for our chat."
_TEMP = re.compile(r"^The project's temporary directory is: (.+)$", re.MULTILINE)
_SINGLE_FOLDER = re.compile(
    r"^(?:\s*- )?I'm currently working in the (?:directory|following directories): *(/.*)$", re.MULTILINE
)
_FOLDER_LIST = re.compile(
    r"^(?:- \*\*Workspace Directories:\*\*|I'm currently working in the following directories:)\n((?: +- .+\n)+)",
    re.MULTILINE,
)


def is_context(text: str) -> bool:
    """Return whether `text` is the context text (folders, date, instructions) that the CLI adds to
    each conversation. A prompt of the user is not a context text.

    >>> is_context("<session_context>\\nThis is the Gemini CLI. We are setting up the context for our chat.")
    True
    """
    return text.lstrip().removeprefix("<session_context>").lstrip().startswith(_CONTEXT)


def folders_in_context(text: str) -> dict[str, str]:
    """Find the folders in the context text that the CLI adds to each conversation. Return a map
    from the path of each folder to its placeholder.

    >>> folders_in_context("The project's temporary directory is: /home/me/.gemini/tmp/repo")
    {'/home/me/.gemini/tmp/repo': '<temp>', '/home/me': '<home>'}
    """
    folders_by_path: dict[str, str] = {}
    folders = [path.strip() for path in _SINGLE_FOLDER.findall(text)]
    folders += [line.strip()[2:] for block in _FOLDER_LIST.findall(text) for line in block.splitlines()]
    for at, path in enumerate(folders, 1):
        folders_by_path.setdefault(path, "<workspace>" if at == 1 else f"<workspace {at}>")
    for path in _TEMP.findall(text):
        folders_by_path.setdefault(path.strip(), "<temp>")
        home, inside, _ = path.partition("/.gemini/")
        if inside:
            folders_by_path.setdefault(home, "<home>")
    return {path: name for path, name in folders_by_path.items() if _is_folder(path)}


def _is_folder(path: str) -> bool:
    return path.startswith("/") and path.strip("/") != ""


class PathReplacer:
    """Replaces the paths of folders in texts. `words` maps each path to its replacement.

    The path of a file in such a folder begins with the folder's path. This beginning is replaced
    too.

    >>> PathReplacer({"/repo": "<workspace>"}).text("see /repo/a.py, not /repo2 nor /old/repo")
    'see <workspace>/a.py, not /repo2 nor /old/repo'
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = {path.rstrip("/"): word for path, word in words.items() if _is_folder(path)}
        longest_first = sorted(self._words, key=lambda path: (-len(path), path))
        inner = "|".join(map(re.escape, longest_first)) or "(?!)"
        self._pattern = re.compile(rf"(?<![\w.~-])(?:{inner})(?![\w-]|\.\w)")

    @classmethod
    def between(cls, old: Mapping[str, str], new: Mapping[str, str]) -> PathReplacer:
        """Create a replacer that replaces the folders of one run with those of another run.

        `old` and `new` map the folders of each run to placeholders. A folder in `old` is replaced
        with the folder in `new` that has the same placeholder.
        """
        paths: dict[str, str] = {}
        for path, name in new.items():
            paths.setdefault(name, path)
        return cls({path: paths[name] for path, name in old.items() if name in paths})

    def text(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._words[match[0]], text)

    def value(self, value: Any) -> Any:
        """Return a decoded JSON value with the folder paths in all its texts replaced. The keys of
        objects stay unchanged.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        return value


def folders_in(texts: Iterable[str]) -> dict[str, str]:
    """Find folders in those `texts` that are context texts of the CLI (see `is_context`), and
    ignore the other texts. Return a map from the path of each folder to its placeholder. If several
    texts give a path different placeholders, the first one is used.
    """
    folders_by_path: dict[str, str] = {}
    for text in texts:
        if is_context(text):
            for path, name in folders_in_context(text).items():
                folders_by_path.setdefault(path, name)
    return folders_by_path
