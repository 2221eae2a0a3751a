"""Draw the charts of a usage report as SVG inside HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from html import escape

from geminids.views.sanitize import one_line
from geminids.views.transcript.html_page import escaped
from geminids.views.usage.notes import cost, dollars, money_digits, short_number
from geminids.views.usage.usage import Key, Report, UsageEntry, UsageRow, group_usage

__all__ = ["bars", "columns"]

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960, 240, 60, 10, 24
_MAX_SERIES = 6
_MAX_DAYS = 120
_MAX_BARS = 8
_MAX_LABELS = 12
_MAX_BAR_WIDTH = 56
_KINDS = ("input, not cached", "input from the cache", "output", "thinking")


def columns(report: Report) -> Iterator[str]:
    """Yield the HTML of two charts: the cost by day and model, and the tokens by day and kind.

    If the report has more than 120 days, the charts show months.
    """
    days = {used.day for used in report.used}
    if not days:
        return
    # How many characters of a date name a column: 10 for a day (2026-11-16), 7 for a month
    # (2026-11).
    unit = 10 if len(_every_day(days)) <= _MAX_DAYS else 7
    slots = _every_day(days) if unit == 10 else sorted({day[:7] for day in days})
    unit_name = "day" if unit == 10 else "month"
    if any(used.usd for used in report.used):
        names = _models_by_cost(report)
        yield f"<h2>Cost by {unit_name}</h2>\n"
        yield _legend(names)
        yield _chart(slots, _costs(report.used, names, unit), names, _money)
    yield f"<h2>Tokens by {unit_name}</h2>\n"
    yield _legend(_KINDS)
    yield _chart(slots, _tokens(report.used, unit), _KINDS, lambda value: short_number(int(value)))


def bars(report: Report, key: Key) -> Iterator[str]:
    """Yield the HTML of a bar chart of the models or projects (`key`) with the highest cost.

    If no cost is known, the chart shows tokens.
    """
    by_cost = any(used.usd for used in report.used)

    def size(row: UsageRow) -> float:
        return float(row.usd) if by_cost else float(row.total)

    rows = sorted(group_usage(report.used, (key,)), key=size, reverse=True)
    largest = size(rows[0]) if rows else 0.0
    if not largest:
        return
    shown = rows[:_MAX_BARS]
    yield f'<section><h2>By {key}</h2>\n<svg viewBox="0 0 460 {34 * len(shown)}" role="img">\n'
    for at, row in enumerate(shown):
        name, amount = (
            escaped(_path_end(row.keys[0])),
            escape(cost(row, money_digits(report.total)) if by_cost else short_number(row.total)),
        )
        width, top = max(size(row) / largest * 460, 1.5), at * 34
        yield f'<text class="name" x="0" y="{top + 12}">{name}</text>'
        yield f'<text x="460" y="{top + 12}" text-anchor="end">{amount}</text>'
        yield f'<rect class="s0" x="0" y="{top + 17}" width="{width:.1f}" height="9" rx="3"/>\n'
    yield "</svg>"
    if len(rows) > len(shown):
        yield f'<div class="dim">and {len(rows) - len(shown):,} more</div>'
    yield "</section>\n"


def _every_day(days: set[str]) -> list[str]:
    """Return all days from the first to the last of `days`, including days without usage.

    If there are too many days for a chart, return a list of empty strings: the caller needs only
    the length of this list.
    """
    known_days = sorted(day for day in days if day[:1].isdigit())
    if not known_days:
        return sorted(days)
    first, last = date.fromisoformat(known_days[0]), date.fromisoformat(known_days[-1])
    if (last - first).days > _MAX_DAYS:
        return [""] * (
            _MAX_DAYS + 1
        )  # there are too many days for a chart: the caller needs only their number
    return [(first + timedelta(at)).isoformat() for at in range((last - first).days + 1)]


def _models_by_cost(report: Report) -> list[str]:
    """Return the names of the models that have a cost, the one with the highest cost first.

    If there are more than six, the last name is `others`. It stands for all models that are not in
    the list.
    """
    rows = sorted(group_usage(report.used, ("model",)), key=lambda row: row.usd, reverse=True)
    names = [row.keys[0] for row in rows if row.usd]
    return names if len(names) <= _MAX_SERIES else [*names[: _MAX_SERIES - 1], "others"]


def _costs(used: tuple[UsageEntry, ...], names: list[str], unit: int) -> dict[str, list[float]]:
    index = {name: number for number, name in enumerate(names)}
    slots: dict[str, list[float]] = {}
    for entry in used:
        if entry.usd:
            slot = slots.setdefault(entry.day[:unit], [0.0] * len(names))
            slot[index.get(entry.model, len(names) - 1)] += float(entry.usd)
    return slots


def _tokens(used: tuple[UsageEntry, ...], unit: int) -> dict[str, list[float]]:
    slots: dict[str, list[float]] = {}
    for entry in used:
        slot, tokens = slots.setdefault(entry.day[:unit], [0.0] * 4), entry.tokens
        cached = min(tokens.cached, tokens.input)
        parts = (tokens.input - cached + tokens.tool, cached, tokens.output, tokens.thinking)
        for number, part in enumerate(parts):
            slot[number] += part
    return slots


def _chart(
    slots: list[str],
    stacks: dict[str, list[float]],
    names: tuple[str, ...] | list[str],
    label_of: Callable[[float], str],
) -> str:
    top = _round_up(max((sum(parts) for parts in stacks.values()), default=0.0))
    height, slot_width = _HEIGHT - _TOP - _BOTTOM, (_WIDTH - _LEFT) / len(slots)
    bar_width = min(slot_width * 0.76, _MAX_BAR_WIDTH)
    drawn = [f'<div class="wide chart"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">']
    for step in range(5):
        y = _TOP + height * (1 - step / 4)
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(label_of(top * step / 4))}</text>'
        )
    label_step = -(-len(slots) // _MAX_LABELS)
    for number, slot in enumerate(slots):
        x, base = _LEFT + number * slot_width, float(_TOP + height)
        for series, part in enumerate(stacks.get(slot, ())):
            bar_height = part / top * height
            base -= bar_height
            if part:
                tooltip = f"{slot} · {names[series]}: {label_of(part)}"
                drawn.append(
                    f'<rect class="s{series}" x="{x + (slot_width - bar_width) / 2:.1f}" y="{base:.1f}" '
                    f'width="{bar_width:.1f}" height="{max(bar_height, 0.4):.1f}">'
                    f"<title>{escaped(tooltip)}</title></rect>"
                )
        if number % label_step == 0:
            label = slot[5:] if len(slot) == 10 else slot
            drawn.append(
                f'<text x="{x + slot_width / 2:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{escaped(label)}</text>'
            )
    return "\n".join([*drawn, "</svg></div>\n"])


def _round_up(value: float) -> float:
    """Return the top of a chart's scale: the next round number that is not smaller than `value`.

    The scale has four steps. So a quarter of the result is a round number too.

    >>> _round_up(0.35), _round_up(71.0), _round_up(12.9), _round_up(0)
    (0.4, 80.0, 16.0, 1.0)
    """
    if value <= 0:
        return 1.0
    size = 1.0
    while size > value:
        size /= 10
    while size * 10 < value:
        size *= 10
    return next(
        (size * step for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8) if size * step >= value), size * 10
    )


def _money(value: float) -> str:
    digits = 2 if not value or 0.1 <= value < 100 else 4 if value < 0.1 else 0
    return dollars(Decimal(str(round(value, 6))), digits)


def _legend(names: tuple[str, ...] | list[str]) -> str:
    items = (f'<span><i class="s{at}"></i>{escaped(name)}</span>' for at, name in enumerate(names))
    return f'<div class="legend">{"".join(items)}</div>\n'


def _path_end(name: str) -> str:
    """Shorten a long path to its end, which is its most useful part."""
    line = one_line(name)
    if len(line) <= 44:
        return line
    slash = line.find("/", len(line) - 43)
    return "…" + (line[slash:] if 0 < slash < len(line) - 20 else line[-43:])
