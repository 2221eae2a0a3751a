"""Measure `geminids usage`, compared with `ccusage` on the same session files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.table import Row, Side, log, median
from benchmarks.usage_corpus import make_corpus

__all__ = ["run"]

_ROOT = Path(__file__).parents[1]
_CCUSAGE = ".referees/ccusage/node_modules/@ccusage/ccusage-linux-x64/bin/ccusage"
_BOUND = 1.2


def run(work: Path, *, quick: bool) -> list[Row]:
    sessions = 100 if quick else 400
    if not (_ROOT / _CCUSAGE).exists():
        log("  installing ccusage")
        subprocess.run(["make", "-s", ".referees/ccusage/ready"], cwd=_ROOT, check=True, timeout=600)
    size = make_corpus(work / ".gemini", sessions=sessions, size=440_000)
    # Run the binary of ccusage directly: its start script would add the start of Node.
    commands = {
        "ccusage 20.0.24, gemini daily --json --offline": [
            str(_ROOT / _CCUSAGE),
            *("gemini", "daily", "--json", "--offline"),
        ],
        "geminids usage --json": [sys.executable, "-m", "geminids", "usage", "--json"],
    }
    environ = {**os.environ, "HOME": str(work), "GEMINIDS_HOME": str(work / "none"), "TZ": "UTC"}
    for name in ("GEMINI_CLI_HOME", "GEMINI_CLI_GEMINIDS_SOURCE", "GEMINI_DATA_DIR"):
        environ.pop(name, None)
    figures: dict[str, list[float]] = {name: [] for name in commands}
    reports: dict[str, Any] = {}
    for number in range(4 if quick else 10):
        for name, command in commands.items():
            began = time.perf_counter()
            ran = subprocess.run(command, env=environ, check=True, capture_output=True, timeout=60)
            if number:  # the first round reads files from the disk and fills the price cache
                figures[name].append((time.perf_counter() - began) * 1000)
            reports[name] = json.loads(ran.stdout)
    theirs, ours = reports.values()
    assert ours["total"]["total"] == theirs["totals"]["totalTokens"], "the totals differ"
    sides = tuple(Side(name, "ms", tuple(times)) for name, times in figures.items())
    ratio = median(sides[1].figures) / median(sides[0].figures)
    return [
        Row(
            name=f"usage of {sessions} sessions, {size / 1e6:.0f} MB, vs. ccusage",
            sides=sides,
            figure=ratio,
            shown=f"{ratio:.2f} x",
            bound=_BOUND,
        )
    ]
