"""Write the answer of a model to a screen while it arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rich.text import Text

from geminids.views.sanitize import clean
from geminids.views.terminal.screen import Screen
from geminids.views.terminal.wrap import wrap

__all__ = ["AnswerWriter"]

_MAX_TAIL = 200


class _Stream(Protocol):
    @property
    def tail(self) -> str: ...
    def feed(self, text: str) -> list[Text]: ...
    def end(self) -> list[Text]: ...


class AnswerWriter:
    """Writes one answer.

    With colors, the answer is rendered as Markdown, block by block. Without colors, it is written
    as it is, line by line: the marks of Markdown then show what is code or a heading. In a terminal,
    its lines are wrapped at words, except code and tables; in a file or a pipe, they do not change.
    """

    def __init__(self, screen: Screen, *, indent: int = 0) -> None:
        self._screen = screen
        self._indent = indent
        self._stream = self._new_stream()

    @property
    def tail(self) -> str:
        """The end of the text that is not written yet, because its block is not complete."""
        return self._stream.tail

    def write(self, text: str) -> None:
        """Write a piece of the answer."""
        self._write_rows(self._stream.feed(text))

    def end(self) -> None:
        """Write the rest of the answer."""
        self._write_rows(self._stream.end())

    def _write_rows(self, rows: list[Text]) -> None:
        for row in rows:
            self._screen.paragraph(row, indent=self._indent)

    def _width(self) -> int | None:
        width = self._screen.width
        return None if width is None else max(width - self._indent, 1)

    def _new_stream(self) -> _Stream:
        if not self._screen.has_colors:
            return _PlainStream(self._width)
        # Imported late, because it loads the Markdown parser.
        from geminids.views.terminal.markdown_stream import MarkdownStream

        return MarkdownStream(self._width)


class _PlainStream:
    def __init__(self, width: Callable[[], int | None]) -> None:
        self._width = width
        self._partial: list[str] = []
        self._in_code = False

    @property
    def tail(self) -> str:
        return "".join(self._partial[-_MAX_TAIL:])[-_MAX_TAIL:]

    def feed(self, text: str) -> list[Text]:
        first, *rest = text.split("\n")
        self._partial.append(first)
        if not rest:
            return []
        lines = ["".join(self._partial), *rest[:-1]]
        self._partial = [rest[-1]]
        return [row for line in lines for row in self._rows(line)]

    def end(self) -> list[Text]:
        line = "".join(self._partial)
        return self._rows(line) if line else []

    def _rows(self, line: str) -> list[Text]:
        width = self._width()
        is_fence = line.lstrip().startswith(("```", "~~~"))
        self._in_code ^= is_fence
        if width is None or is_fence or self._in_code or line.startswith("|"):
            return [Text(clean(line), no_wrap=True)]
        return wrap(Text(clean(line).expandtabs()), width)
