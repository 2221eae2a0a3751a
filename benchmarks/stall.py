"""Measure the host's processor time while a run is silent, with and without the stall watch.

python -m benchmarks.stall SCRIPT FOLDER SECONDS STALL_AFTER   one measurement, in its own process
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import anyio

import geminids
from benchmarks.table import Row, Side, log

__all__ = ["run"]

# A silent run whose tool has some child processes for the watch to inspect.
_CLI = """\
#!{python} -IS
import json, os, subprocess, sys, time
if "--version" in sys.argv:
    print("0.61.0")
    sys.exit()
def out(kind, **fields):
    os.write(1, (json.dumps(dict(type=kind, timestamp="2026-11-16T03:27:52.123Z", **fields)) + "\\n").encode())
out("init", session_id="5f0c0f5e-1111-4222-8333-444455556666", model="auto")
out("tool_use", tool_name="run_shell_command", tool_id="t", parameters=dict(command="sleep"))
shells = [subprocess.Popen(["sleep", "600"]) for _ in range(5)]
time.sleep(600)
"""
_MAX_PERCENT = 0.5
# With 30 s, the watch only waits: the measurement ends before the first notice. With 2 s, there are
# notices after 2, 6 and 14 s: the watch inspects processes far more often than by default.
_SIDES: tuple[tuple[str, str], ...] = (("without", "none"), ("30 s", "30"), ("2 s", "2"))


def run(work: Path, *, quick: bool) -> list[Row]:
    seconds, rounds = (8, 1) if quick else (16, 3)
    script = work / "gemini"
    script.write_text(_CLI.format(python=sys.executable))
    script.chmod(0o755)
    shares: dict[str, list[float]] = {name: [] for name, _ in _SIDES}
    for number in range(rounds):
        log(f"  round {number + 1} of {rounds}")
        for name, after in _SIDES:
            folder = work / f"{number}-{after}"
            folder.mkdir()
            shares[name].append(_worker(script, folder, seconds, after))
    sides = {
        name: Side(f"stall_after: {name}", "millionths of a core", tuple(figures))
        for name, figures in shares.items()
    }
    return [_row(name, sides["without"], sides[name]) for name, _ in _SIDES[1:]]


def _row(name: str, without: Side, side: Side) -> Row:
    share = (side.median - without.median) / 10_000
    return Row(
        name=f"the stall watch after {name}, % of a core",
        sides=(without, side),
        figure=share,
        shown=f"{share:.2f} %",
        bound=_MAX_PERCENT,
    )


def _worker(script: Path, folder: Path, seconds: float, after: str) -> float:
    argv = [sys.executable, "-m", "benchmarks.stall", str(script), str(folder), str(seconds), after]
    env = {**os.environ, "GEMINIDS_HOME": str(folder / "geminids"), "GEMINIDS_CONFIG": os.devnull}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=env)
    if done.returncode:
        raise SystemExit(f"the measurement failed:\n{done.stderr}")
    return float(done.stdout)


async def _measure(script: str, folder: str, seconds: float, after: str) -> float:
    """Return millionths of a core.

    The measurement starts after one second, so that imports are not counted.
    """
    stall_after = None if after == "none" else float(after)
    options = geminids.Options(
        gemini=script, home="isolated", cwd=folder, grace=0.2, stall_after=stall_after, idle_timeout=None
    )
    async with geminids.open_run("hi", options) as run:
        async for event in run:
            if isinstance(event, geminids.ToolStarted):
                break
        await anyio.sleep(1)
        began, spent = time.monotonic(), time.process_time()
        await anyio.sleep(seconds)
        share = (time.process_time() - spent) / (time.monotonic() - began) * 1_000_000
        run.stop()
    return share


if __name__ == "__main__":
    print(anyio.run(_measure, sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]))
