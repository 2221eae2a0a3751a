"""Plots of usage as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from html import escape

from geminids.views.sanitize import one_line
from geminids.views.transcript.html_page import escaped
from geminids.views.usage.notes import cost, digits_of, dollars, short
from geminids.views.usage.usage import Key, Report, Row, Used, grouped

__all__ = ["bars", "columns"]

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960, 240, 60, 10, 24
_SERIES = 6
_MOST_DAYS = 120
_MOST_BARS = 8
_LABELS = 12
_WIDEST = 56
_KINDS = ("input, not cached", "input from the cache", "output", "thinking")


def columns(report: Report) -> Iterator[str]:
    """Cost by day and model, and tokens by day and kind; by month if there are many days."""
    days = {used.day for used in report.used}
    if not days:
        return
    unit = 10 if len(_every_day(days)) <= _MOST_DAYS else 7
    slots = _every_day(days) if unit == 10 else sorted({day[:7] for day in days})
    word = "day" if unit == 10 else "month"
    if any(used.usd for used in report.used):
        names = _ranked(report)
        yield f"<h2>Cost by {word}</h2>\n"
        yield _legend(names)
        yield _chart(slots, _costs(report.used, names, unit), names, _money)
    yield f"<h2>Tokens by {word}</h2>\n"
    yield _legend(_KINDS)
    yield _chart(slots, _tokens(report.used, unit), _KINDS, lambda value: short(int(value)))


def bars(report: Report, key: Key) -> Iterator[str]:
    """The largest models or projects, one bar each."""
    by_cost = any(used.usd for used in report.used)

    def size(row: Row) -> float:
        return float(row.usd) if by_cost else float(row.total)

    rows = sorted(grouped(report.used, (key,)), key=size, reverse=True)
    most = size(rows[0]) if rows else 0.0
    if not most:
        return
    shown = rows[:_MOST_BARS]
    yield f'<section><h2>By {key}</h2>\n<svg viewBox="0 0 460 {34 * len(shown)}" role="img">\n'
    for at, row in enumerate(shown):
        name, amount = (
            escaped(_end(row.keys[0])),
            escape(cost(row, digits_of(report.total)) if by_cost else short(row.total)),
        )
        width, top = max(size(row) / most * 460, 1.5), at * 34
        yield f'<text class="name" x="0" y="{top + 12}">{name}</text>'
        yield f'<text x="460" y="{top + 12}" text-anchor="end">{amount}</text>'
        yield f'<rect class="s0" x="0" y="{top + 17}" width="{width:.1f}" height="9" rx="3"/>\n'
    yield "</svg>"
    if len(rows) > len(shown):
        yield f'<div class="dim">and {len(rows) - len(shown):,} more</div>'
    yield "</section>\n"


def _every_day(days: set[str]) -> list[str]:
    """All days of the period, also those without usage."""
    real = sorted(day for day in days if day[:1].isdigit())
    if not real:
        return sorted(days)
    first, last = date.fromisoformat(real[0]), date.fromisoformat(real[-1])
    if (last - first).days > _MOST_DAYS:
        return [""] * (_MOST_DAYS + 1)
    return [(first + timedelta(at)).isoformat() for at in range((last - first).days + 1)]


def _ranked(report: Report) -> list[str]:
    """The models by cost; the small ones are combined."""
    rows = sorted(grouped(report.used, ("model",)), key=lambda row: row.usd, reverse=True)
    names = [row.keys[0] for row in rows if row.usd]
    return names if len(names) <= _SERIES else [*names[: _SERIES - 1], "others"]


def _costs(used: tuple[Used, ...], names: list[str], unit: int) -> dict[str, list[float]]:
    index = {name: number for number, name in enumerate(names)}
    slots: dict[str, list[float]] = {}
    for entry in used:
        if entry.usd:
            slot = slots.setdefault(entry.day[:unit], [0.0] * len(names))
            slot[index.get(entry.model, len(names) - 1)] += float(entry.usd)
    return slots


def _tokens(used: tuple[Used, ...], unit: int) -> dict[str, list[float]]:
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
    high, wide = _HEIGHT - _TOP - _BOTTOM, (_WIDTH - _LEFT) / len(slots)
    bar = min(wide * 0.76, _WIDEST)
    drawn = [f'<div class="wide chart"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">']
    for step in range(5):
        y = _TOP + high * (1 - step / 4)
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(label_of(top * step / 4))}</text>'
        )
    every = -(-len(slots) // _LABELS)
    for number, slot in enumerate(slots):
        x, base = _LEFT + number * wide, float(_TOP + high)
        for series, part in enumerate(stacks.get(slot, ())):
            tall = part / top * high
            base -= tall
            if part:
                tip = f"{slot} · {names[series]}: {label_of(part)}"
                drawn.append(
                    f'<rect class="s{series}" x="{x + (wide - bar) / 2:.1f}" y="{base:.1f}" width="{bar:.1f}" '
                    f'height="{max(tall, 0.4):.1f}"><title>{escaped(tip)}</title></rect>'
                )
        if number % every == 0:
            label = slot[5:] if len(slot) == 10 else slot
            drawn.append(
                f'<text x="{x + wide / 2:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{escaped(label)}</text>'
            )
    return "\n".join([*drawn, "</svg></div>\n"])


def _round_up(value: float) -> float:
    """The top of the scale: a number that divides well into four parts.

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


def _end(name: str) -> str:
    """The end of a long path, which is the most useful part."""
    line = one_line(name)
    if len(line) <= 44:
        return line
    slash = line.find("/", len(line) - 43)
    return "…" + (line[slash:] if 0 < slash < len(line) - 20 else line[-43:])
