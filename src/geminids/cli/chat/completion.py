"""Complete what the user types in a chat: slash commands and `@paths`."""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterable, Iterator, Mapping

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

__all__ = ["ChatCompleter"]

_MAX_PATHS = 200
_COMMAND = re.compile(r"/([a-z]*)")
_ARGUMENT = re.compile(r"/([a-z]+) +(\S*)")
_PATH = re.compile(r"(?:\A|.*[\s(\[{\"'])@((?:\\.|[^\s\\])*)", re.DOTALL)
# In a path of a prompt, the CLI needs a backslash before these characters (atCommandProcessor.ts).
_SPECIAL = re.compile(r"([\s,;!?()\[\]{}\"'\\])")


class ChatCompleter(Completer):
    """Completes the names and arguments of slash commands, and the paths of files after `@`.

    `commands` has the description of each command by its usage, such as `/mode [MODE]`. `arguments`
    has the possible arguments of a command. Paths are relative to `cwd`, as for the CLI.
    """

    def __init__(self, commands: Mapping[str, str], arguments: Mapping[str, Iterable[str]], cwd: str) -> None:
        self._commands = {usage.split()[0]: text for usage, text in commands.items()}
        self._arguments = arguments
        self._cwd = cwd

    def applies_to(self, text: str) -> bool:
        """Return whether `text`, the input before the cursor, ends with something to complete."""
        return bool(_COMMAND.fullmatch(text) or _ARGUMENT.fullmatch(text) or _PATH.fullmatch(text))

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if _COMMAND.fullmatch(text):
            for name, description in self._commands.items():
                if name.startswith(text):
                    yield Completion(name, -len(text), display_meta=description)
        elif match := _ARGUMENT.fullmatch(text):
            for word in self._arguments.get(f"/{match[1]}", ()):
                if word.startswith(match[2]):
                    yield Completion(word, -len(match[2]))
        elif match := _PATH.fullmatch(text):
            yield from self._paths(match[1])

    def _paths(self, typed: str) -> Iterator[Completion]:
        folder, _, start = typed.rpartition("/")
        if typed.startswith("/") and not folder:
            folder = "/"
        prefix = _unescaped(start)
        for name in heapq.nsmallest(_MAX_PATHS, self._names(_unescaped(folder), prefix)):
            # A name that a terminal cannot show could also not be typed.
            if name.isprintable():
                yield Completion(_SPECIAL.sub(r"\\\1", name), -len(start), display=name)

    def _names(self, folder: str, prefix: str) -> Iterator[str]:
        """Yield the names in a folder that begin with `prefix`; folders end with a slash.

        Hidden files are left out, unless the user has typed the dot.
        """
        try:
            with os.scandir(os.path.join(self._cwd, folder)) as entries:
                for entry in entries:
                    if entry.name.startswith(prefix) and (prefix or not entry.name.startswith(".")):
                        yield f"{entry.name}/" if entry.is_dir() else entry.name
        except OSError:
            return


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
