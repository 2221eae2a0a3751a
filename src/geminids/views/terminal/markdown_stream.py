"""Format Markdown that arrives in pieces: each block becomes rows as soon as it is complete.

The rows are the same as those of `render`, which gets the whole text at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.text import Text

from geminids.views.sanitize import clean
from geminids.views.terminal.markdown_rows import (
    MAX_NUMBER,
    MarkdownBlock,
    Rows,
    block_rows,
    code_row,
    list_items,
    list_number,
    parse,
)

__all__ = ["MarkdownStream"]

# A block of these kinds is complete when an empty line follows it.
_ENDED_BY_BLANK_LINE = ("paragraph", "heading", "table", "blockquote", "hr")
# A block of these kinds is complete at once.
_ENDED_BY_ITSELF = ("heading", "hr")
# The lines that wait for the end of their block are parsed again for each new line at first, and
# then each time they have grown by a quarter. So the cost of a block is linear in its length.
_EAGER_PARSES = 8
_GROWTH = 1.25
_MAX_TAIL = 200


class MarkdownStream:
    """Converts pieces of a Markdown text to rows of a terminal.

    `width` returns the current number of columns, or None if lines are not wrapped.
    """

    def __init__(self, width: Callable[[], int | None]) -> None:
        self._width = width
        self._rows = Rows()
        self._partial: list[str] = []
        """Pieces of a line whose end has not arrived yet."""
        self._lines: list[str] = []
        """Lines whose block may not be complete yet."""
        self._in_list = False
        """Whether the first of these lines stands for list items that were already shown."""
        self._last_kind = ""
        self._parses = 0
        self._parsed_size = 0
        self._size = 0
        self._fence: re.Pattern[str] | None = None
        """Matches the end of the code block whose lines are now shown one by one."""
        self._language = ""
        self._blank_lines = 0

    @property
    def tail(self) -> str:
        """The end of the text that is not shown yet."""
        if self._partial:
            return "".join(self._partial[-_MAX_TAIL:])[-_MAX_TAIL:]
        return self._lines[-1][-_MAX_TAIL:] if self._lines else ""

    def feed(self, text: str) -> list[Text]:
        """Add a piece of the text, and return the rows of the blocks that are now complete."""
        first, *rest = text.split("\n")
        if first:
            self._partial.append(first)
        if not rest:
            return []
        self._add_lines(["".join(self._partial), *rest[:-1]])
        self._partial = [rest[-1]] if rest[-1] else []
        return self._rows.take()

    def end(self) -> list[Text]:
        """End the text, and return the rows of its last blocks."""
        if self._partial:
            self._add_lines(["".join(self._partial)])
            self._partial = []
        for block in parse(self._lines):
            self._show(block)
        self._lines = []
        return self._rows.take()

    def _add_lines(self, lines: list[str]) -> None:
        is_useful = False
        for line in map(clean, lines):
            if self._fence is not None:
                self._add_code(line)
                continue
            is_useful |= self._is_end(line)
            self._lines.append(line)
            self._size += len(line) + 1
        has_grown = self._size >= _GROWTH * self._parsed_size
        if self._lines and (is_useful or has_grown or self._parses < _EAGER_PARSES):
            self._parses += 1
            self._parsed_size = self._size
            self._show_complete(parse(self._lines))

    def _is_end(self, line: str) -> bool:
        """Return whether this line certainly completes a block, so that it is useful to parse."""
        if self._last_kind in _ENDED_BY_BLANK_LINE:
            return not line.strip()
        is_after_blank = bool(self._lines) and not self._lines[-1].strip()
        return self._last_kind != "fence" and is_after_blank and bool(line[:1].strip())

    def _show_complete(self, blocks: list[MarkdownBlock]) -> None:
        """Show the blocks that no later line can change, and keep the lines of the others."""
        if not blocks:
            self._keep(len(self._lines))
            return
        *complete, last = blocks
        for block in complete:
            self._show(block)
        is_ended = last.kind in _ENDED_BY_BLANK_LINE and not self._lines[-1].strip()
        # With the next line, any line with a "|" can turn out to be the head of a table: "# a | b".
        is_certain = "|" not in self._lines[-1] or last.start < len(self._lines) - 1
        is_ended |= last.kind in _ENDED_BY_ITSELF and is_certain
        if is_ended or self._is_closed_fence(last):
            self._show(last)
            self._keep(len(self._lines))
        elif last.kind == "fence" and is_certain and self._lines[last.start][:1] in "`~":
            self._begin_code(last)
        elif last.kind == "list":
            self._show_items(last)
        elif complete:
            self._keep(last.start)
        self._last_kind = last.kind if self._lines and any(map(str.strip, self._lines)) else ""

    def _show(self, block: MarkdownBlock) -> None:
        skip = self._shown_items(block)
        start = list_items(block)[skip].start if skip else block.start
        self._rows.add(
            block.kind,
            block_rows(block, self._lines, self._width(), skip=skip),
            gap=self._is_blank(start - 1),
        )

    def _shown_items(self, block: MarkdownBlock) -> int:
        return 1 if self._in_list and block.start == 0 else 0

    def _show_items(self, block: MarkdownBlock) -> None:
        """Show the items of a list that are complete: all but the last."""
        skip = self._shown_items(block)
        items = list_items(block)
        if len(items) - skip < 2:
            if block.start:
                self._keep(block.start)
            return
        opening, closing = block.tokens[0], block.tokens[-1]
        tokens = [token for item in items[:-1] for token in item.tokens]
        self._show(block._replace(tokens=[opening, *tokens, closing]))
        self._keep(items[-1].start)
        # The first line stands for the items before. It is indented by 3, so that no item can be a
        # part of it, and has the number of the last item that was shown.
        number = min(list_number(block) + len(items) - 2, MAX_NUMBER)
        is_ordered = opening.type == "ordered_list_open"
        self._lines.insert(0, f"   {number if is_ordered else ''}{opening.markup} …")
        self._in_list = True

    def _keep(self, start: int) -> None:
        """Drop the lines before `start`, except an empty line directly before it."""
        if self._is_blank(start - 1):
            start -= 1
        self._lines = self._lines[start:]
        self._in_list = False
        self._parses = self._parsed_size = 0
        self._size = sum(map(len, self._lines)) + len(self._lines)

    def _is_blank(self, number: int) -> bool:
        return number >= 0 and not self._lines[number].strip()

    def _is_closed_fence(self, block: MarkdownBlock) -> bool:
        is_fence = block.kind == "fence" and block.end - 1 > block.start
        return is_fence and _fence_end(block).fullmatch(self._lines[block.end - 1]) is not None

    def _begin_code(self, block: MarkdownBlock) -> None:
        """Show the lines of a code block one by one, because it can be long."""
        self._rows.add(block.kind, [], gap=self._is_blank(block.start - 1))
        self._fence = _fence_end(block)
        self._language = block.tokens[0].info
        lines = self._lines[block.start + 1 :]
        self._lines = []
        self._keep(0)
        for line in lines:
            self._add_code(line)

    def _add_code(self, line: str) -> None:
        if self._fence is not None and self._fence.fullmatch(line):
            self._fence = None
            self._blank_lines = 0
        elif not line:
            self._blank_lines += 1  # empty lines at the end of the code are not shown
        else:
            self._rows.extend(code_row(row, self._language) for row in (*[""] * self._blank_lines, line))
            self._blank_lines = 0


def _fence_end(block: MarkdownBlock) -> re.Pattern[str]:
    markup = block.tokens[0].markup
    return re.compile(rf" {{0,3}}{re.escape(markup[0])}{{{len(markup)},}}[ \t]*")
