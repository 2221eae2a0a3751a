"""Prompts typed by the user: line editing, prompts of several lines, and the history."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["History", "PromptReader", "read_prompt"]

Read = Callable[[bool], str]
"""Reads a line; the argument is True for the first line of a prompt."""
_MAX_ENTRIES = 1000
_MAX_LENGTH = 100_000
_PROMPT, _NEXT_LINE = "> ", ". "


class History:
    """Earlier prompts, one JSON string per line, in a file with mode 0600.

    Each prompt is appended at once: two chats at the same time, or a killed one, lose nothing.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def load(self) -> list[str]:
        """The newest entries, oldest first. Truncates the file when it holds twice as many."""
        try:
            rows = self._file.read_bytes().splitlines()
        except OSError:
            return []
        if len(rows) > 2 * _MAX_ENTRIES:
            rows = rows[-_MAX_ENTRIES:]
            self._rewrite(rows)
        return [text for row in rows[-_MAX_ENTRIES:] if (text := _text(row))]

    def add(self, text: str) -> None:
        """Append a prompt. A write error loses the history entry, not the chat."""
        if len(text) <= _MAX_LENGTH:
            self._write(
                self._file, os.O_APPEND, msgspec.json.encode(text.encode(errors="replace").decode()) + b"\n"
            )

    def _rewrite(self, rows: list[bytes]) -> None:
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        if self._write(draft, os.O_TRUNC, b"\n".join(rows) + b"\n"):
            os.replace(draft, self._file)

    @staticmethod
    def _write(file: Path, flags: int, data: bytes) -> bool:
        from geminids.config.paths import private_dir

        try:
            private_dir(file.parent)
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
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


class PromptReader:
    """Reads prompts from the terminal. The arrow keys recall the history."""

    def __init__(self, history: History) -> None:
        self.begun = False
        """Whether the user is in the middle of a prompt of several lines."""
        self._history = history
        try:
            import readline
        except ImportError:  # not on every platform: then there is no line editing
            self._readline = None
            self._prompt, self._next_line = _PROMPT, _NEXT_LINE
        else:
            self._prompt = _coloured(_PROMPT, readline)
            self._next_line = _coloured(_NEXT_LINE, readline)
            self._readline = readline
            readline.set_auto_history(False)
            # No completion: a tab inserts a tab.
            readline.parse_and_bind("tab: tab-insert")
            if not _is_dumb():
                # Python turns it off. Without it, each pasted line would be sent as its own prompt.
                readline.parse_and_bind("set enable-bracketed-paste on")
            for entry in history.load():
                readline.add_history(entry)

    def read(self) -> str:
        """Read one prompt; raises EOFError and the exceptions of signal handlers."""
        text = read_prompt(self._line)
        if text.strip():
            self._history.add(text)
            if self._readline is not None:
                self._readline.add_history(text)
        return text

    def _line(self, first: bool) -> str:
        self.begun = not first
        return input(self._prompt if first else self._next_line)


def _coloured(prompt: str, readline: Any) -> str:
    """The prompt in colour; \\x01 and \\x02 tell readline which bytes have no width."""
    if os.environ.get("NO_COLOR") or _is_dumb() or "libedit" in (readline.__doc__ or ""):
        return prompt
    return f"\x01\x1b[1;36m\x02{prompt}\x01\x1b[0m\x02"


def _is_dumb() -> bool:
    return os.environ.get("TERM") in (None, "", "dumb")


def read_prompt(read: Read) -> str:
    r"""Read one prompt. A backslash at the end of a line continues it on the next line.

    >>> lines = iter(["one \\", "two", "three"])
    >>> read_prompt(lambda first: next(lines))
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
