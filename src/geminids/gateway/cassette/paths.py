"""The folders that a request of the CLI tells of, and texts that move from one set of folders to another. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["PathReplacer", "folders_in", "folders_in_context", "is_context"]

# The first content of every conversation (environmentContext.ts); without the tags up to 0.32.
_CONTEXT = "This is the Gemini CLI. We are setting up the context for our chat."
_TEMP = re.compile(r"^The project's temporary directory is: (.+)$", re.MULTILINE)
_ONE = re.compile(
    r"^(?:\s*- )?I'm currently working in the (?:directory|following directories): *(/.*)$", re.MULTILINE
)
_MANY = re.compile(
    r"^(?:- \*\*Workspace Directories:\*\*|I'm currently working in the following directories:)\n((?: +- .+\n)+)",
    re.MULTILINE,
)


def is_context(text: str) -> bool:
    """Whether a text is the CLI's own introduction of the folder, and nobody's prompt.

    >>> is_context("<session_context>\\nThis is the Gemini CLI. We are setting up the context for our chat.")
    True
    """
    return text.lstrip().removeprefix("<session_context>").lstrip().startswith(_CONTEXT)


def folders_in_context(text: str) -> dict[str, str]:
    """The folders that an introduction names: path to what it is.

    >>> folders_in_context("The project's temporary directory is: /home/me/.gemini/tmp/repo")
    {'/home/me/.gemini/tmp/repo': '<temp>', '/home/me': '<home>'}
    """
    found: dict[str, str] = {}
    folders = [path.strip() for path in _ONE.findall(text)]
    folders += [line.strip()[2:] for block in _MANY.findall(text) for line in block.splitlines()]
    for at, path in enumerate(folders, 1):
        found.setdefault(path, "<workspace>" if at == 1 else f"<workspace {at}>")
    for path in _TEMP.findall(text):
        found.setdefault(path.strip(), "<temp>")
        home, inside, _ = path.partition("/.gemini/")
        if inside:
            found.setdefault(home, "<home>")
    return {path: name for path, name in found.items() if _is_place(path)}


def _is_place(path: str) -> bool:
    return path.startswith("/") and path.strip("/") != ""


class PathReplacer:
    """Puts other words in the place of folders, wherever a text names them or something in them.

    >>> PathReplacer({"/repo": "<workspace>"}).text("see /repo/a.py, not /repo2 nor /old/repo")
    'see <workspace>/a.py, not /repo2 nor /old/repo'
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = {path.rstrip("/"): word for path, word in words.items() if _is_place(path)}
        longest_first = sorted(self._words, key=lambda path: (-len(path), path))
        inner = "|".join(map(re.escape, longest_first)) or "(?!)"
        self._pattern = re.compile(rf"(?<![\w.~-])(?:{inner})(?![\w-]|\.\w)")

    @classmethod
    def between(cls, old: Mapping[str, str], new: Mapping[str, str]) -> PathReplacer:
        """From the folders of one run to those of another that are called the same."""
        paths: dict[str, str] = {}
        for path, name in new.items():
            paths.setdefault(name, path)
        return cls({path: paths[name] for path, name in old.items() if name in paths})

    def text(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._words[found[0]], text)

    def value(self, value: Any) -> Any:
        """The same for every text in a decoded JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        return value


def folders_in(texts: Iterable[str]) -> dict[str, str]:
    """The folders that any of these texts introduces; the first word on a folder counts."""
    found: dict[str, str] = {}
    for text in texts:
        if is_context(text):
            for path, name in folders_in_context(text).items():
                found.setdefault(path, name)
    return found
