"""Print a usage report in a terminal: a table that fits the width, a bar chart, and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from geminids.views.amounts import count
from geminids.views.sanitize import one_line
from geminids.views.terminal.screen import Screen
from geminids.views.usage.notes import cost, money_digits, notes, short_number
from geminids.views.usage.usage import Key, Report, group_usage

__all__ = ["print_report"]

# The columns that are left out if all their numbers are 0.
_RARE = ("other_requests", "discarded_requests")
_COLUMNS = ("requests", *_RARE, "input", "cached", "output", "thinking", "total")
# In a narrow terminal, columns are left out in this order.
_DROP_ORDER = (*_RARE, "thinking", "cached", "requests", "output", "input", "total")
_HEADS = {"other_requests": "OTHER", "discarded_requests": "DISCARDED"}
_MAX_KEY_WIDTH = 40
# The width of the first columns in a narrow terminal: the length of a typical model name.
_NARROW_KEY_WIDTH = 22
_MIN_CHART_WIDTH = 40
_MAX_BARS = 31
_MAX_BAR_WIDTH = 60
_EIGHTHS = " ▏▎▍▌▋▊▉"
_MAX_TROUBLES = 5


def print_report(screen: Screen, report: Report) -> None:
    """Print the table, the chart, the notes, and the names of the files that could not be read
    completely."""
    at_least = "≥" if screen.unicode else ">="
    _print_table(screen, report, at_least)
    if screen.width is not None and screen.width >= _MIN_CHART_WIDTH and report.by and report.used:
        _print_chart(screen, report, at_least)
    screen.gap()
    for note in notes(report):
        screen.paragraph(Text(note, "dim"))
    for trouble in report.troubles[:_MAX_TROUBLES]:
        screen.paragraph(Text(one_line(f"not counted: {trouble.file}: {trouble.what}", 4000), "yellow"))
    if len(report.troubles) > _MAX_TROUBLES:
        more = len(report.troubles) - _MAX_TROUBLES
        screen.paragraph(Text(f"and {count(more, 'file')} more with records that cannot be read", "yellow"))


def _print_table(screen: Screen, report: Report, at_least: str) -> None:
    heads, lines = _fitting(report, screen.width, at_least)
    widths = [max(cell_len(line[at]) for line in (heads, *lines)) for at in range(len(heads))]
    keys = max(len(report.by), 1)
    screen.line(Text(_joined(heads, widths, keys), "bold"))
    previous = ""
    for line in lines[:-1]:
        # In a terminal, do not repeat the first key if the line before has the same one. In a
        # pipe, each line is complete.
        is_repeated = keys > 1 and line[0] == previous and screen.width is not None
        previous = line[0]
        screen.line(Text(_joined(["", *line[1:]] if is_repeated else line, widths, keys)))
    screen.line(Text(_joined(lines[-1], widths, keys), "bold"))


def _fitting(report: Report, width: int | None, at_least: str) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the lines of the table, shortened so that they fit `width` columns.

    If `width` is None (in a pipe), nothing is shortened.
    """
    columns = [column for column in _COLUMNS if column not in _RARE or getattr(report.total, column)]
    full = _cells(report, columns, "{:,}".format, 4000 if width is None else _MAX_KEY_WIDTH, at_least)
    if width is None or _width(*full) <= width:
        return full
    for dropped in ("", *_DROP_ORDER):
        columns = [column for column in columns if column != dropped]
        for key_width in (_MAX_KEY_WIDTH, _NARROW_KEY_WIDTH):
            cells = _cells(report, columns, short_number, key_width, at_least)
            if _width(*cells) <= width:
                return cells
    return cells


def _cells(
    report: Report, columns: Sequence[str], format_number: Callable[[int], str], key_width: int, at_least: str
) -> tuple[list[str], list[list[str]]]:
    names = [key.upper() for key in report.by] or [""]
    known_heads = {**_HEADS, "requests": "REQS"} if format_number is short_number else _HEADS
    heads = [*names, *(known_heads.get(column, column.upper()) for column in columns), "COST"]
    digits = money_digits(report.total)
    lines = []
    for row in (*report.rows, report.total):
        keys = [_label(key, value, key_width) for key, value in zip(report.by, row.keys, strict=False)]
        keys = keys or ["TOTAL", *[""] * (len(names) - 1)]
        lines.append(
            [*keys, *(format_number(getattr(row, name)) for name in columns), cost(row, digits, at_least)]
        )
    return heads, lines


def _width(heads: list[str], lines: list[list[str]]) -> int:
    columns = zip(heads, *lines, strict=True)
    return sum(max(map(cell_len, column)) + 2 for column in columns) - 2


def _joined(cells: Sequence[str], widths: Sequence[int], keys: int) -> str:
    """Join the cells of a line.

    The first `keys` cells are aligned left, the numbers after them right.
    """
    fitted = [
        set_cell_size(cell, width) if at < keys else " " * (width - cell_len(cell)) + cell
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(fitted).rstrip()


def _label(key: Key, value: str, key_width: int) -> str:
    text = one_line(value, 4000)
    if key == "session" and key_width < 4000:
        return text[:8]
    if len(text) <= key_width:
        return text
    # Keep the end of a path, which is its most useful part. Cut at a slash if possible.
    end = text[1 - key_width :]
    slash = end.find("/")
    return "…" + (end[slash:] if 0 < slash < key_width // 2 else end)


def _print_chart(screen: Screen, report: Report, at_least: str) -> None:
    key = report.by[0]
    rows = group_usage(report.used, (key,))
    by_cost = any(row.usd for row in rows)
    if key != "day":
        rows.sort(key=lambda row: row.usd if by_cost else row.total, reverse=True)
    shown = rows[-_MAX_BARS:] if key == "day" else rows[:_MAX_BARS]
    largest = max((row.usd if by_cost else Decimal(row.total) for row in shown), default=Decimal(0))
    labels = [_label(key, row.keys[0], _NARROW_KEY_WIDTH) for row in shown]
    digits = money_digits(report.total)
    amounts = [cost(row, digits, at_least) if by_cost else short_number(row.total) for row in shown]
    left, right = max(map(cell_len, labels)), max(map(len, amounts))
    bar_width = min((screen.width or 80) - left - right - 4, _MAX_BAR_WIDTH)
    if not largest or bar_width < 4:
        return
    screen.gap()
    part = (
        ""
        if len(rows) == len(shown)
        else f", the last {_MAX_BARS}"
        if key == "day"
        else f", the {_MAX_BARS} biggest"
    )
    screen.line(Text(f"{'Cost' if by_cost else 'Tokens'} by {key}{part}", "bold"))
    for row, label, amount in zip(shown, labels, amounts, strict=True):
        share = float((row.usd if by_cost else Decimal(row.total)) / largest)
        bar = set_cell_size(_bar(share * bar_width, screen.unicode), bar_width)
        screen.line(
            Text(set_cell_size(label, left) + "  "), Text(bar, "cyan"), Text("  " + amount.rjust(right))
        )


def _bar(cells: float, unicode: bool) -> str:
    if not unicode:
        return "#" * round(cells)
    whole, rest = divmod(round(cells * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
