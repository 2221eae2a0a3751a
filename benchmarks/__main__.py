"""Run all benchmarks, or those with the given names."""

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
from benchmarks.table import Row, format_table, log

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
        "names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(_ALL)}; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller streams")
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    args = parser.parse_args()
    if unknown := set(args.names) - set(_ALL):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="geminids-bench-") as folder:
        for name in args.names or _ALL:
            log(f"{name} ...")
            work = Path(folder, name)
            work.mkdir()
            try:
                measured = _ALL[name](work, quick=args.quick)
            except KeyboardInterrupt:
                log(f"interrupted in {name}; the results so far are above")
                interrupted = True
                break
            rows += measured
            print(format_table(measured), flush=True)
            if args.json:
                figures = msgspec.json.format(msgspec.json.encode(rows), indent=1)
                Path(args.json).write_bytes(figures + b"\n")
    load = os.getloadavg()[0]
    print(
        f"\n{os.cpu_count()} cores, load {load:.1f}, Python {sys.version.split()[0]}; all figures are medians."
    )
    missed = [row.name for row in rows if not row.met]
    print(f"Missed: {'; '.join(missed)}" if missed else "All bounds are met.")
    if interrupted:
        return 130
    return 1 if missed and args.strict else 0


if __name__ == "__main__":
    sys.exit(main())
