"""Wrap text at words."""

from __future__ import annotations

import re

from rich.cells import cell_len, chop_cells
from rich.text import Text

__all__ = ["wrap"]

_WORD = re.compile(r"(\s*\S+)(\s*)")


def wrap(text: Text, width: int | None) -> list[Text]:
    """Return the rows of a text that is wrapped at words; with a width of None, its lines.

    A word that is wider than a row, such as a URL, stays whole. The terminal wraps it, so it can be
    copied. Only text in a script with wide letters is broken within a word, because it has no
    spaces.
    """
    rows = list(text.split("\n", allow_blank=True)) or [Text()]
    if width is not None:
        rows = [part for row in rows for part in row.divide(_breaks(row.plain, width))]
    for row in rows:
        row.rstrip()
        row.no_wrap = True
    return rows


def _breaks(line: str, width: int) -> list[int]:
    breaks, column = [], 0
    for match in _WORD.finditer(line):
        word = match[1]
        cells = cell_len(word)
        if column and column + cells > width:
            breaks.append(match.start())
            column = 0
        if cells > width and cells != len(word):
            at = match.start()
            *full, last = chop_cells(word, width)
            for part in full:
                at += len(part)
                breaks.append(at)
            cells = cell_len(last)
        column += cells + len(match[2])
    return breaks
