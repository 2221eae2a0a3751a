"""The prompts that a person types: line editing, several lines, and the history of earlier chats."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["History", "Typed", "joined"]

Read = Callable[[bool], str]
"""Reads a line; told whether it is the first of its prompt."""
_KEPT = 1000
_LONGEST = 100_000
_PROMPT, _MORE = "> ", ". "


class History:
    """What was typed before, one JSON text a line, in a file that only its owner can read.

    Written line by line as it comes: two chats at once, and one that is killed, lose nothing.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def load(self) -> list[str]:
        """The newest entries, oldest first; the file is cut to them where it has grown to twice as many."""
        try:
            rows = self._file.read_bytes().splitlines()
        except OSError:
            return []
        if len(rows) > 2 * _KEPT:
            rows = rows[-_KEPT:]
            self._rewrite(rows)
        return [text for row in rows[-_KEPT:] if (text := _text(row))]

    def add(self, text: str) -> None:
        """Remember one; a disk that is full or a folder that cannot be written costs the history, not the chat."""
        if len(text) <= _LONGEST:
            self._write(
                self._file, os.O_APPEND, msgspec.json.encode(text.encode(errors="replace").decode()) + b"\n"
            )

    def _rewrite(self, rows: list[bytes]) -> None:
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        if self._write(draft, os.O_TRUNC, b"\n".join(rows) + b"\n"):
            os.replace(draft, self._file)

    @staticmethod
    def _write(file: Path, how: int, data: bytes) -> bool:
        from geminids.config.paths import private_dir

        try:
            private_dir(file.parent)
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
            with os.fdopen(fd, "wb") as out:
                out.write(data)
            return True
        except OSError:
            return False


def _text(row: bytes) -> str | None:
    try:
        return msgspec.json.decode(row, type=str)
    except msgspec.DecodeError:
        return None


class Typed:
    """Reads prompts from the terminal, with the history behind the arrow keys."""

    def __init__(self, history: History) -> None:
        self.begun = False
        """Whether a prompt of several lines has begun."""
        self._history = history
        try:
            import readline
        except ImportError:  # not everywhere: then a line is a line
            self._readline = None
            self._prompt, self._more = _PROMPT, _MORE
        else:
            self._prompt, self._more = _coloured(_PROMPT, readline), _coloured(_MORE, readline)
            self._readline = readline
            readline.set_auto_history(False)
            # A line may hold anything: nothing is completed, a tab is a tab.
            readline.parse_and_bind("tab: tab-insert")
            if not _is_dumb():
                # Python turns it off. Without it each line of a paste would be sent as a prompt of its own.
                readline.parse_and_bind("set enable-bracketed-paste on")
            for entry in history.load():
                readline.add_history(entry)

    def read(self) -> str:
        """One prompt; raises EOFError, and what signals raise."""
        text = joined(self._line)
        if text.strip():
            self._history.add(text)
            if self._readline is not None:
                self._readline.add_history(text)
        return text

    def _line(self, first: bool) -> str:
        self.begun = not first
        return input(self._prompt if first else self._more)


def _coloured(prompt: str, readline: Any) -> str:
    """Marked so that the editor does not count the codes."""
    if os.environ.get("NO_COLOR") or _is_dumb() or "libedit" in (readline.__doc__ or ""):
        return prompt
    return f"\x01\x1b[1;36m\x02{prompt}\x01\x1b[0m\x02"


def _is_dumb() -> bool:
    return os.environ.get("TERM") in (None, "", "dumb")


def joined(read: Read) -> str:
    r"""The lines of one prompt: a backslash at the end of a line says that another one follows.

    >>> lines = iter(["one \\", "two", "three"])
    >>> joined(lambda first: next(lines))
    'one \ntwo'
    """
    rows = [read(True)]
    while rows[-1].endswith("\\"):
        rows[-1] = rows[-1][:-1]
        try:
            rows.append(read(False))
        except EOFError:
            break
    return "\n".join(rows)
