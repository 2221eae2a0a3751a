"""Measure reading a line of 100 MB. It may take at most twelve times as long as a line of 10 MB."""

from __future__ import annotations

from pathlib import Path

from benchmarks.stream import cat_of, mixed, one_long_line, worker
from benchmarks.table import Row, Side, log

__all__ = ["run"]


def run(work: Path, *, quick: bool) -> list[Row]:
    rounds = 3 if quick else 7
    warm_up = cat_of(mixed(work / "small.ndjson", 1000))
    scripts = {size: cat_of(one_long_line(work / f"{size}.ndjson", size * 1_000_000)) for size in (10, 100)}
    times: dict[int, list[float]] = {size: [] for size in scripts}
    for number in range(rounds):
        log(f"  round {number + 1} of {rounds}")
        for size, script in scripts.items():
            times[size].append(worker("geminids", work, script, warm_up)["seconds"] * 1000)
    short, long = (Side(f"a line of {size} MB", "ms", tuple(times[size])) for size in scripts)
    ratio = long.median / short.median
    name = "a line of 100 MB vs. one of 10 MB"
    return [Row(name=name, sides=(short, long), figure=ratio, shown=f"{ratio:.2f} x", bound=12)]
