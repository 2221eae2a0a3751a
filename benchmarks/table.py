"""What a benchmark found, and how it is shown: losses as plainly as the rest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median

import msgspec

__all__ = ["Row", "Side", "median", "say", "show"]


class Side(msgspec.Struct, frozen=True):
    """One side of a comparison: what it is, and the figures of its rounds."""

    name: str
    unit: str
    figures: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(median(self.figures))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One question: both sides, the figure that counts, and its bound (None: shown for information)."""

    name: str
    sides: tuple[Side, ...]
    figure: float
    shown: str
    bound: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool:
        if self.bound is None:
            return True
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return "-"
        return "pass" if self.met else "LOSS"


def say(text: str) -> None:
    """Progress goes to stderr: stdout has the table alone."""
    print(text, file=sys.stderr, flush=True)


def show(rows: Sequence[Row]) -> str:
    """The table, one line a row and one line a side."""
    lines = [f"{'benchmark':<58} {'figure':>12} {'bound':>10}  verdict"]
    for row in rows:
        bound = "" if row.bound is None else f"{'>=' if row.at_least else '<='} {row.bound:g}"
        lines.append(f"{row.name:<58} {row.shown:>12} {bound:>10}  {row.verdict}")
        for side in row.sides:
            spread = f"{min(side.figures):,.0f} to {max(side.figures):,.0f}, n={len(side.figures)}"
            lines.append(f"    {side.name:<54} {side.median:>12,.0f} {side.unit} ({spread})")
        if row.note:
            lines.append(f"    {row.note}")
    return "\n".join(lines)
