"""Write lines to a terminal, with a changing status line below them.

If the output is not a terminal, there is no status line.
"""

from __future__ import annotations

import errno
from io import StringIO
from typing import IO

from rich.console import Console
from rich.text import Text

__all__ = ["Screen"]

_MIN_WIDTH = 40
_MAX_LENGTH_IN_PIPE = 1000
_ERASE_BELOW = "\x1b[J"
# Replacements for our symbols, for terminals that cannot show them.
_ASCII = str.maketrans(
    {"✓": "+", "✗": "x", "⊘": "-", "◌": "o", "■": "#", "·": "-", "→": "->", "…": "...", "“": '"', "”": '"'}
    | {"•": "*", "│": "|", "─": "-", "┼": "+"}
)


class Screen:
    """Collects lines, text and a status line. `flush` writes them to a terminal or a file.

    If the program that reads the output has ended, `flush` raises `BrokenPipeError` once. If the
    output cannot be written for another reason, such as a full disk, `flush` raises another
    `OSError` once.

    The status line is drawn below the text, and then the cursor moves back to the start of that
    line. So text can be written at any time. To erase the status line, everything after the cursor
    is erased.
    """

    def __init__(self, file: IO[str], *, terminal: bool | None = None, width: int | None = None) -> None:
        console = Console(file=file, force_terminal=terminal, width=width)
        is_tty = file.isatty() if terminal is None else terminal
        plain = console.is_dumb_terminal or (is_tty and console.width < _MIN_WIDTH)
        self._console = console
        self._renderer = None if plain or console.color_system is None else _memory_console(console)
        self._file = file
        self._is_tty = is_tty
        # With FORCE_COLOR, rich treats a pipe as a terminal. Then use colors, but no status line.
        self.live = is_tty and console.is_terminal and not plain and not console.legacy_windows
        encoding = getattr(file, "encoding", None) or "utf-8"
        self._encoding = None if encoding.lower().replace("-", "") == "utf8" else encoding
        self._out: list[str] = []
        self._end = "\n\n"
        self._shown: str | None = None
        self._is_closed = False

    @property
    def unicode(self) -> bool:
        return self._encoding is None

    @property
    def has_colors(self) -> bool:
        return self._renderer is not None and not self._renderer.no_color

    @property
    def width(self) -> int | None:
        """The number of columns that a line can use; None if the output is not a terminal.

        The terminal is asked for its width each time, because the user can resize the window.
        """
        return max(self._console.width - 1, 1) if self._is_tty else None

    def text(self, text: str) -> None:
        """Write text unchanged. It does not need to end with a line break."""
        self._put(text)

    def line(self, *parts: Text, indent: int = 0) -> None:
        """Write `parts` on a line of their own, truncated to the width of the terminal."""
        self.new_line()
        self._put(self._render(self._cut(_joined(indent, *parts))) + "\n")

    def paragraph(self, text: Text, *, indent: int = 0) -> None:
        """Write text on lines of its own, wrapped at words.

        If the text has `no_wrap` set, it is written on one line, which the terminal itself wraps.
        """
        self.new_line()
        rows = [text]
        if self.width is not None and not text.no_wrap:
            rows = list(text.wrap(self._console, max(self.width - indent, 1)))
        for row in rows:
            self._put(self._render(_joined(indent if row else 0, row)) + "\n")

    def new_line(self) -> None:
        """End the current line, unless the cursor is already at the start of a line."""
        if not self._end.endswith("\n"):
            self._put("\n")

    def gap(self) -> None:
        """Write an empty line, unless the last line is already empty or nothing was written yet."""
        self.new_line()
        if self._end != "\n\n":
            self._put("\n")

    def status(self, line: Text | None) -> None:
        """Show `line` as the status line below the text; with None, remove the status line.

        While the cursor is at the end of a question, there is no status line.
        """
        if not self.live or not self._end.endswith("\n"):
            return
        if line is None or self._console.width < _MIN_WIDTH:
            self._erase()
            return
        drawn = self._render(self._cut(line))
        if drawn == self._shown:
            return
        self._out.append(f"\r{drawn}{_ERASE_BELOW}\r")
        self._shown = drawn

    def flush(self) -> None:
        """Write everything that was collected since the last call, in one step."""
        text = "".join(self._out)
        self._out.clear()
        if not text or self._is_closed:
            return
        if self._encoding is not None:
            text = text.translate(_ASCII).encode(self._encoding, "replace").decode(self._encoding)
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            self._is_closed = True
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            # The reader has ended: a pipe reports EPIPE, a closed terminal reports EIO.
            raise BrokenPipeError(*error.args) from error

    def close(self) -> None:
        """Remove the status line, and move the cursor to the start of a new line. Never raises."""
        self._erase()
        self.new_line()
        try:
            self.flush()
        except OSError:
            pass

    def _put(self, text: str) -> None:
        if not text:
            return
        self._erase()
        self._out.append(text)
        self._end = (self._end + text[-2:])[-2:]

    def _erase(self) -> None:
        if self._shown is not None:
            # Go to the start of the line, because the terminal may have written ^C there.
            self._out.append("\r" + _ERASE_BELOW)
            self._shown = None

    def _cut(self, line: Text) -> Text:
        line.truncate(self.width or _MAX_LENGTH_IN_PIPE, overflow="ellipsis")
        return line

    def _render(self, line: Text) -> str:
        if self._renderer is None or not (line.style or line.spans or "\t" in line.plain):
            return line.plain
        with self._renderer.capture() as rendered:
            self._renderer.print(line, end="", soft_wrap=True)
        return rendered.get()


def _memory_console(console: Console) -> Console:
    """Return a copy of `console` that writes to memory.

    The copy is used to render text, because with the real console, rich would flush the output file
    each time.
    """
    return Console(
        file=StringIO(),
        force_terminal=True,
        color_system=console.color_system,  # type: ignore[arg-type]
        no_color=console.no_color,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _joined(indent: int, *parts: Text) -> Text:
    return Text.assemble(" " * indent, *parts)
