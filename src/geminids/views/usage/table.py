"""`geminids usage` in a terminal: a table that fits the width, and a bar for each day."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from geminids.views.amounts import count
from geminids.views.sanitize import one_line
from geminids.views.terminal.screen import Screen
from geminids.views.usage.notes import cost, digits_of, notes, short
from geminids.views.usage.usage import Key, Report, grouped

__all__ = ["print_report"]

# Columns that are shown only if they are not empty.
_RARE = ("other_requests", "discarded_requests")
_COLUMNS = ("requests", *_RARE, "input", "cached", "output", "thinking", "total")
# In a narrow terminal, columns are dropped in this order.
_LEAST = (*_RARE, "thinking", "cached", "requests", "output", "input", "total")
_HEADS = {"other_requests": "OTHER", "discarded_requests": "DISCARDED"}
_WIDEST_KEY = 40
# The length of a typical model name.
_NARROW_KEY = 22
_CHART_FROM = 40
_BARS = 31
_LONGEST_BAR = 60
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SHOWN_TROUBLES = 5


def print_report(screen: Screen, report: Report) -> None:
    """The table, the chart, the notes, and the files that could not be read."""
    at_least = "≥" if screen.unicode else ">="
    _print_table(screen, report, at_least)
    if screen.width is not None and screen.width >= _CHART_FROM and report.by and report.used:
        _print_chart(screen, report, at_least)
    screen.gap()
    for note in notes(report):
        screen.paragraph(Text(note, "dim"))
    for trouble in report.troubles[:_SHOWN_TROUBLES]:
        screen.paragraph(Text(one_line(f"not counted: {trouble.what} in {trouble.file}", 4000), "yellow"))
    if len(report.troubles) > _SHOWN_TROUBLES:
        more = len(report.troubles) - _SHOWN_TROUBLES
        screen.paragraph(Text(f"and {count(more, 'file')} more with records that cannot be read", "yellow"))


def _print_table(screen: Screen, report: Report, at_least: str) -> None:
    heads, lines = _fitting(report, screen.width, at_least)
    widths = [max(cell_len(line[at]) for line in (heads, *lines)) for at in range(len(heads))]
    keys = max(len(report.by), 1)
    screen.line(Text(_joined(heads, widths, keys), "bold"))
    above = ""
    for line in lines[:-1]:
        # On a terminal a repeated first key is left out. In a pipe each line is complete.
        again = keys > 1 and line[0] == above and screen.width is not None
        above = line[0]
        screen.line(Text(_joined(["", *line[1:]] if again else line, widths, keys)))
    screen.line(Text(_joined(lines[-1], widths, keys), "bold"))


def _fitting(report: Report, width: int | None, at_least: str) -> tuple[list[str], list[list[str]]]:
    """The widest form that fits; in a pipe the full form."""
    columns = [column for column in _COLUMNS if column not in _RARE or getattr(report.total, column)]
    full = _cells(report, columns, "{:,}".format, 4000 if width is None else _WIDEST_KEY, at_least)
    if width is None or _width(*full) <= width:
        return full
    for dropped in ("", *_LEAST):
        columns = [column for column in columns if column != dropped]
        for widest in (_WIDEST_KEY, _NARROW_KEY):
            cells = _cells(report, columns, short, widest, at_least)
            if _width(*cells) <= width:
                return cells
    return cells


def _cells(
    report: Report, columns: Sequence[str], number: Callable[[int], str], widest: int, at_least: str
) -> tuple[list[str], list[list[str]]]:
    names = [key.upper() for key in report.by] or [""]
    known_heads = {**_HEADS, "requests": "REQS"} if number is short else _HEADS
    heads = [*names, *(known_heads.get(column, column.upper()) for column in columns), "COST"]
    digits = digits_of(report.total)
    lines = []
    for row in (*report.rows, report.total):
        keys = [_label(key, value, widest) for key, value in zip(report.by, row.keys, strict=False)]
        keys = keys or ["TOTAL", *[""] * (len(names) - 1)]
        lines.append([*keys, *(number(getattr(row, name)) for name in columns), cost(row, digits, at_least)])
    return heads, lines


def _width(heads: list[str], lines: list[list[str]]) -> int:
    columns = zip(heads, *lines, strict=True)
    return sum(max(map(cell_len, column)) + 2 for column in columns) - 2


def _joined(cells: Sequence[str], widths: Sequence[int], keys: int) -> str:
    """Words are aligned left, numbers right."""
    fitted = [
        set_cell_size(cell, width) if at < keys else " " * (width - cell_len(cell)) + cell
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(fitted).rstrip()


def _label(key: Key, value: str, widest: int) -> str:
    text = one_line(value, 4000)
    if key == "session" and widest < 4000:
        return text[:8]
    if len(text) <= widest:
        return text
    # The end of a path is the most useful part; cut at a slash if one is near.
    end = text[1 - widest :]
    slash = end.find("/")
    return "…" + (end[slash:] if 0 < slash < widest // 2 else end)


def _print_chart(screen: Screen, report: Report, at_least: str) -> None:
    key = report.by[0]
    rows = grouped(report.used, (key,))
    by_cost = any(row.usd for row in rows)
    if key != "day":
        rows.sort(key=lambda row: row.usd if by_cost else row.total, reverse=True)
    shown = rows[-_BARS:] if key == "day" else rows[:_BARS]
    most = max((row.usd if by_cost else Decimal(row.total) for row in shown), default=Decimal(0))
    labels = [_label(key, row.keys[0], _NARROW_KEY) for row in shown]
    digits = digits_of(report.total)
    amounts = [cost(row, digits, at_least) if by_cost else short(row.total) for row in shown]
    left, right = max(map(cell_len, labels)), max(map(len, amounts))
    room = min((screen.width or 80) - left - right - 4, _LONGEST_BAR)
    if not most or room < 4:
        return
    screen.gap()
    part = (
        "" if len(rows) == len(shown) else f", the last {_BARS}" if key == "day" else f", the {_BARS} biggest"
    )
    screen.line(Text(f"{'Cost' if by_cost else 'Tokens'} by {key}{part}", "bold"))
    for row, label, amount in zip(shown, labels, amounts, strict=True):
        share = float((row.usd if by_cost else Decimal(row.total)) / most)
        bar = set_cell_size(_bar(share * room, screen.unicode), room)
        screen.line(
            Text(set_cell_size(label, left) + "  "), Text(bar, "cyan"), Text("  " + amount.rjust(right))
        )


def _bar(cells: float, unicode: bool) -> str:
    if not unicode:
        return "#" * round(cells)
    whole, rest = divmod(round(cells * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
