"""Measure the time of `import geminids` and of `geminids --help`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.table import Row, Side

__all__ = ["run"]

_GEMINIDS = Path(sys.executable).with_name("geminids")
_SIDES = {
    "bare": [sys.executable, "-c", "pass"],
    "import": [sys.executable, "-c", "import geminids"],
    "help": [str(_GEMINIDS), "--help"],
}


def run(work: Path, *, quick: bool) -> list[Row]:
    times: dict[str, list[float]] = {side: [] for side in _SIDES}
    for number in range(1 + (7 if quick else 15)):
        for side, argv in _SIDES.items():
            began = time.perf_counter()
            subprocess.run(argv, stdout=subprocess.DEVNULL, check=True, cwd=work)
            if number:  # the first round fills the disk cache
                times[side].append((time.perf_counter() - began) * 1000)
    bare = Side("python -c pass", "ms", tuple(times["bare"]))
    imported = Side("python -c 'import geminids'", "ms", tuple(times["import"]))
    help_side = Side("geminids --help", "ms", tuple(times["help"]))
    added = imported.median - bare.median
    return [
        Row(
            name="import geminids, ms more than a bare interpreter",
            sides=(bare, imported),
            figure=added,
            shown=f"{added:.0f}",
            bound=60,
        ),
        Row(
            name="geminids --help, ms",
            sides=(help_side,),
            figure=help_side.median,
            shown=f"{help_side.median:.0f}",
            bound=150,
        ),
    ]
