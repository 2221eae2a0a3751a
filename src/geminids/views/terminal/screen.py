"""A terminal with permanent lines and a status line below them; a pipe gets only the lines."""

from __future__ import annotations

import errno
from io import StringIO
from typing import IO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

__all__ = ["Screen"]

_NARROW = 40
_LONGEST_IN_A_PIPE = 1000
_ERASE_BELOW = "\x1b[J"
# Index (ESC D) moves down, scrolls at the bottom of the screen, and keeps the column, unlike a
# newline. Back up again, the position is saved. It stays valid when restored, because nothing
# scrolls after that.
_DOWN = "\x1bD\x1b[A\x1b7\r\x1b[B"
_BACK = "\x1b8"
# For terminals that cannot show our symbols.
_ASCII = str.maketrans(
    {"✓": "+", "✗": "x", "⊘": "-", "◌": "o", "■": "#", "·": "-", "→": "->", "…": "...", "“": '"', "”": '"'}
)


class Screen:
    """Collects output until `flush`, which raises `BrokenPipeError` once if the reader is gone.

    A full disk raises its own OSError, also once.

    The cursor always rests at the end of the text. The status line is drawn from there, and the
    cursor moves back. So text is written as it comes, and erasing below the cursor erases the
    status line.
    """

    def __init__(self, file: IO[str], *, terminal: bool | None = None, width: int | None = None) -> None:
        console = Console(file=file, force_terminal=terminal, width=width)
        is_tty = file.isatty() if terminal is None else terminal
        plain = console.is_dumb_terminal or (is_tty and console.width < _NARROW)
        self._console = console
        self._paint = None if plain or console.color_system is None else _painter(console)
        self._file = file
        self._is_tty = is_tty
        # With FORCE_COLOR, rich treats a pipe as a terminal: use colours, but no status line.
        self.live = is_tty and console.is_terminal and not plain and not console.legacy_windows
        encoding = getattr(file, "encoding", None) or "utf-8"
        self._encoding = None if encoding.lower().replace("-", "") == "utf8" else encoding
        self._out: list[str] = []
        self._end = "\n\n"
        # The text of this line since its column was last counted.
        self._row: list[str] = []
        self._column = 0
        self._shown: str | None = None
        self._is_closed = False

    @property
    def unicode(self) -> bool:
        return self._encoding is None

    @property
    def width(self) -> int | None:
        """The columns of a line; None if lines are not cut.

        Read each time, because windows are resized.
        """
        return max(self._console.width - 1, 1) if self._is_tty else None

    def text(self, text: str) -> None:
        """Write text unchanged; it may end within a line."""
        self._put(text)
        cut = text.rfind("\n")
        if cut >= 0:
            self._begin_row()
        self._row.append(text[cut + 1 :])

    def line(self, *parts: Text, indent: int = 0) -> None:
        """Write a separate line, cut to the width."""
        self.new_line()
        self._put(self._render(self._cut(_joined(indent, *parts))) + "\n")

    def paragraph(self, text: Text, *, indent: int = 0) -> None:
        """Write text on separate lines, wrapped at words; with `no_wrap` the terminal wraps it."""
        self.new_line()
        rows = [text]
        if self.width is not None and not text.no_wrap:
            rows = list(text.wrap(self._console, max(self.width - indent, 1)))
        for row in rows:
            self._put(self._render(_joined(indent, row)) + "\n")

    def new_line(self) -> None:
        """End the current line, if any."""
        if not self._end.endswith("\n"):
            self._put("\n")
            self._begin_row()

    def gap(self) -> None:
        """Write an empty line, unless there is one already or the screen is empty."""
        self.new_line()
        if self._end != "\n\n":
            self._put("\n")

    def status(self, line: Text | None) -> None:
        """Draw the status line, or erase it."""
        if not self.live:
            return
        if line is None or self._console.width < _NARROW:
            self._erase()
            return
        drawn = self._render(self._cut(line))
        if drawn == self._shown:
            return
        if self._end.endswith("\n"):
            self._out.append(f"\r{drawn}{_ERASE_BELOW}\r")
        elif self._is_full():
            return  # after moving away and back, the terminal would not wrap
        else:
            self._out.append(f"{_DOWN}{drawn}{_ERASE_BELOW}{_BACK}")
        self._shown = drawn

    def flush(self) -> None:
        """Write the collected output at once."""
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
            # EPIPE comes from a pipe, EIO from a closed terminal.
            raise BrokenPipeError(*error.args) from error

    def close(self) -> None:
        """Leave the cursor at the start of an empty line; never raises."""
        self._erase()
        self.new_line()
        try:
            self.flush()
        except OSError:
            pass

    def _begin_row(self) -> None:
        self._row.clear()
        self._column = 0

    def _put(self, text: str) -> None:
        if not text:
            return
        self._erase()
        self._out.append(text)
        self._end = (self._end + text[-2:])[-2:]

    def _erase(self) -> None:
        if self._shown is not None:
            # The terminal may have echoed ^C at the start of the line.
            self._out.append("\r" + _ERASE_BELOW if self._end.endswith("\n") else _ERASE_BELOW)
            self._shown = None

    def _is_full(self) -> bool:
        """Whether the cursor is after the last column.

        The terminal wraps only at the next letter.
        """
        width = self._console.width
        for letter in "".join(self._row):
            if letter == "\t":
                self._column = min((self._column // 8 + 1) * 8, width - 1)
                continue
            cells = cell_len(letter)
            self._column = cells if self._column + cells > width else self._column + cells
        self._row.clear()
        return self._column >= width

    def _cut(self, line: Text) -> Text:
        line.truncate(self.width or _LONGEST_IN_A_PIPE, overflow="ellipsis")
        return line

    def _render(self, line: Text) -> str:
        if self._paint is None:
            return line.plain
        with self._paint.capture() as rendered:
            self._paint.print(line, end="", soft_wrap=True)
        return rendered.get()


def _painter(console: Console) -> Console:
    """A console with the same colours that writes to memory.

    Rich flushes its file at every capture.
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
