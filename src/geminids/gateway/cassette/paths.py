"""Find the folders that a request of the CLI names, and replace them in texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["PathReplacer", "folders_in", "folders_in_context", "is_context"]

# The first content of every conversation (environmentContext.ts); without the tags up to 0.32.
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
    """Whether a text is the context that the CLI adds to a conversation, and not a prompt.

    >>> is_context("<session_context>\\nThis is the Gemini CLI. We are setting up the context for our chat.")
    True
    """
    return text.lstrip().removeprefix("<session_context>").lstrip().startswith(_CONTEXT)


def folders_in_context(text: str) -> dict[str, str]:
    """The folders that a context names: path to placeholder.

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
    """Replaces folders in texts, also at the beginning of longer paths.

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
        """A replacer from the folders of one run to those of another with the same placeholders."""
        paths: dict[str, str] = {}
        for path, name in new.items():
            paths.setdefault(name, path)
        return cls({path: paths[name] for path, name in old.items() if name in paths})

    def text(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._words[match[0]], text)

    def value(self, value: Any) -> Any:
        """Replace the folders in every text of a decoded JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        return value


def folders_in(texts: Iterable[str]) -> dict[str, str]:
    """The folders that any context in these texts names. The first placeholder of a folder is
    used."""
    folders_by_path: dict[str, str] = {}
    for text in texts:
        if is_context(text):
            for path, name in folders_in_context(text).items():
                folders_by_path.setdefault(path, name)
    return folders_by_path
