"""A million events in each dialect: how fast, and with how much memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.stream import mixed
from benchmarks.table import Row, Side, say
from geminids.dialects.conversion import Own, converted
from geminids.dialects.tongue import TONGUES
from geminids.run.recorded import open_recording

__all__ = ["run"]

_LEAST = 200_000
# Their lines are out when they are said. The others hold what their last line or their document will have: untether
# the text, adapter and atif the whole run.
_FLAT = ("agent-events", "claude", "claude --partial", "record")
_MOST_MEGABYTES = 20


def run(work: Path, *, quick: bool) -> list[Row]:
    rounds = 3
    count = 200_000 if quick else 1_000_000
    big, small = (_events(work, name, size) for name, size in (("big", count), ("small", 2000)))
    rows: list[Row] = []
    reading = [_measured("reading", big, small)["megabytes"] for _ in range(rounds)]
    alone = Side("reading the events alone", "MB", tuple(reading))
    for name in ("events", *sorted((*TONGUES, "claude --partial"))):
        say(f"  {name}")
        rows += _rows(name, [_measured(name, big, small) for _ in range(rounds)], count, alone)
    return rows


def _events(work: Path, name: str, count: int) -> Path:
    """The events of a run as `--save-events` has them."""
    file = work / f"{name}.jsonl"
    with mixed(work / f"{name}.ndjson", count).open("rb") as source, file.open("wb") as out:
        out.writelines(converted(Own, open_recording(source).batches()))
    return file


def _measured(name: str, big: Path, small: Path) -> dict[str, float]:
    argv = [sys.executable, "-m", "benchmarks.dialect_worker", name, str(big), str(small)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise SystemExit(f"benchmarks.dialect_worker {name} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _rows(name: str, found: list[dict[str, float]], count: int, alone: Side) -> list[Row]:
    speed = Side(name, "events/s", tuple(one["count"] / one["seconds"] for one in found))
    memory = Side(name, "MB", tuple(one["megabytes"] for one in found))
    more = memory.median - alone.median
    return [
        Row(
            name=f"{count:,} events as {name}, events/s",
            sides=(speed,),
            figure=speed.median,
            shown=f"{speed.median:,.0f}",
            bound=_LEAST,
            at_least=True,
        ),
        Row(
            name="... memory at its peak, over that of reading, MB",
            sides=(memory, alone),
            figure=more,
            shown=f"{more:.1f}",
            bound=_MOST_MEGABYTES if name in _FLAT else None,
        ),
    ]
