"""Read the prompts that the user types in a chat, with line editing and a history."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from geminids.config.paths import private_dir

__all__ = ["History", "PromptReader", "read_prompt"]

Read = Callable[[bool], str]
"""A function that reads one line. Its argument is True if the line is the first line of a prompt."""
_MAX_ENTRIES = 1000
_MAX_LENGTH = 100_000
_PROMPT, _NEXT_LINE = "> ", ". "


class History:
    """The earlier prompts of the user, stored in a file that only the user can read.

    Each line of the file is a prompt as a JSON string. A prompt is appended immediately. So no
    prompt is lost if several chats run at the same time, or if a chat is killed.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def load(self) -> list[str]:
        """Return the newest 1,000 prompts, the oldest first. Return an empty list if the file
        cannot be read.

        If the file has more than 2,000 prompts, remove all but the newest 1,000 from it.
        """
        try:
            rows = self._file.read_bytes().splitlines()
        except OSError:
            return []
        if len(rows) > 2 * _MAX_ENTRIES:
            rows = rows[-_MAX_ENTRIES:]
            self._rewrite(rows)
        return [text for row in rows[-_MAX_ENTRIES:] if (text := _text(row))]

    def add(self, text: str) -> None:
        """Append a prompt to the history.

        A prompt with more than 100,000 characters is not stored. If the file cannot be written, the
        prompt is not stored either, and no error is raised.
        """
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
    """Reads prompts from the terminal. The arrow keys show the earlier prompts."""

    def __init__(self, history: History) -> None:
        self.begun = False
        """Whether the user has typed a first line that continues on the next line."""
        self._history = history
        try:
            import readline
        except ImportError:  # some platforms have no readline; then there is no line editing
            self._readline = None
            self._prompt, self._next_line = _PROMPT, _NEXT_LINE
        else:
            self._prompt = _coloured(_PROMPT, readline)
            self._next_line = _coloured(_NEXT_LINE, readline)
            self._readline = readline
            readline.set_auto_history(False)
            # The tab key inserts a tab, because there is nothing to complete.
            readline.parse_and_bind("tab: tab-insert")
            if not _is_dumb():
                # Python turns bracketed paste off. Without it, each line of a pasted text would be
                # sent as its own prompt.
                readline.parse_and_bind("set enable-bracketed-paste on")
            for entry in history.load():
                readline.add_history(entry)

    def read(self) -> str:
        """Read one prompt, and add it to the history.

        Raises EOFError at the end of the input. Exceptions that a signal handler raises are passed
        on.
        """
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
    """Return `prompt` with color codes; without them if the terminal does not support color.

    The codes are put between \\x01 and \\x02. So readline does not count them as part of the width.
    """
    if os.environ.get("NO_COLOR") or _is_dumb() or "libedit" in (readline.__doc__ or ""):
        return prompt
    return f"\x01\x1b[1;36m\x02{prompt}\x01\x1b[0m\x02"


def _is_dumb() -> bool:
    return os.environ.get("TERM") in (None, "", "dumb")


def read_prompt(read: Read) -> str:
    r"""Read one prompt. If a line ends with a backslash, the prompt continues on the next line.

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
