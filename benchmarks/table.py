"""Results of benchmarks, and the table that shows them and their bounds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median

import msgspec

__all__ = ["Row", "Side", "format_table", "log", "median"]


class Side(msgspec.Struct, frozen=True):
    """One side of a comparison, with the figure of each round."""

    name: str
    unit: str
    figures: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(median(self.figures))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One result: the compared sides, the figure, and its bound (None: for information only)."""

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


def log(text: str) -> None:
    """Print progress to stderr: stdout holds only the table."""
    print(text, file=sys.stderr, flush=True)


def format_table(rows: Sequence[Row]) -> str:
    """Format the table: one line per row and one per side."""
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
