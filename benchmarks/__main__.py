"""Run all benchmarks, or those named: start, warm, events, dialects, line, journal, follow, imports, gateway,
usage, cost, stall."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks import (
    cost,
    dialects,
    events,
    follow,
    gateway,
    imports,
    journal,
    line,
    sessions,
    stall,
    start,
    usage,
    warm,
)
from benchmarks.table import Row, say, show

_ALL = {
    "start": start.run,
    "warm": warm.run,
    "events": events.run,
    "dialects": dialects.run,
    "line": line.run,
    "sessions": sessions.run,
    "journal": journal.run,
    "follow": follow.run,
    "imports": imports.run,
    "gateway": gateway.run,
    "usage": usage.run,
    "cost": cost.run,
    "stall": stall.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which of {', '.join(_ALL)}; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller streams")
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a bound is missed")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(_ALL):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="geminids-bench-") as folder:
        for name in asked.names or _ALL:
            say(f"{name} ...")
            work = Path(folder, name)
            work.mkdir()
            try:
                measured = _ALL[name](work, quick=asked.quick)
            except KeyboardInterrupt:
                say(f"interrupted in {name}; what was measured before is above")
                interrupted = True
                break
            rows += measured
            print(show(measured), flush=True)
            if asked.json:
                figures = msgspec.json.format(msgspec.json.encode(rows), indent=1)
                Path(asked.json).write_bytes(figures + b"\n")
    busy = os.getloadavg()[0]
    print(
        f"\n{os.cpu_count()} cores, load {busy:.1f}, Python {sys.version.split()[0]}; medians, sides interleaved."
    )
    lost = [row.name for row in rows if not row.met]
    print(f"Missed: {'; '.join(lost)}" if lost else "All bounds are met.")
    if interrupted:
        return 130
    return 1 if lost and asked.strict else 0


if __name__ == "__main__":
    sys.exit(main())
