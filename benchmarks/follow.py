"""Measure processor time while a run with a journal is idle, and the speed of a stream with a journal.

python -m benchmarks.follow SCRIPT FOLDER SECONDS   one measurement, in its own process
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio

import geminids
from benchmarks.stream import cat_of, mixed, worker
from benchmarks.table import Row, Side, log

__all__ = ["run"]

_STAMP = "2026-11-16T03:27:52.123Z"
_CLI = """\
#!{python} -IS
import json, os, sys, time
if "--version" in sys.argv:
    print("0.61.0")
    sys.exit()
ID = "5f0c0f5e-1111-4222-8333-444455556666"
STAMP = "2026-11-16T03:27:52.123Z"
def out(kind, **fields):
    os.write(1, (json.dumps(dict(type=kind, timestamp=STAMP, **fields)) + "\\n").encode())
if {journal}:
    chats = os.path.join(os.environ["GEMINI_CLI_HOME"], ".gemini", "tmp", "bench", "chats")
    os.makedirs(chats, exist_ok=True)
    with open(os.path.join(chats, "..", ".project_root"), "w") as file:
        file.write(os.getcwd())
    with open(os.path.join(chats, "session-2026-11-16T03-27-" + ID[:8] + ".jsonl"), "a") as file:
        file.write(json.dumps(dict(sessionId=ID, projectHash="0", startTime=STAMP, kind="main")) + "\\n")
out("init", session_id=ID, model="auto")
if {tool}:
    out("tool_use", tool_name="run_shell_command", tool_id="t", parameters={{}})
time.sleep(600)
"""
# Name, whether there is a journal, whether a tool runs, the bound in percent of a core.
_KINDS: tuple[tuple[str, bool, bool, float | None], ...] = (
    ("following an idle run, % of a core", True, False, 1.0),
    ("... without a journal", False, False, 1.0),
    ("... while a tool runs", True, True, None),
)


def run(work: Path, *, quick: bool) -> list[Row]:
    seconds, rounds = (3, 1) if quick else (6, 3)
    shares: dict[str, list[float]] = {name: [] for name, *_ in _KINDS}
    for number in range(rounds):
        log(f"  round {number + 1} of {rounds}")
        for at, (name, journal, tool, _) in enumerate(_KINDS):
            folder = work / f"{at}-{number}"
            folder.mkdir()
            script = folder / "gemini"
            script.write_text(_CLI.format(python=sys.executable, journal=journal, tool=tool))
            script.chmod(0o755)
            shares[name].append(_worker(script, folder, seconds))
    idle = [
        _row(name, Side("processor time of the host", "millionths of a core", tuple(shares[name])), bound)
        for name, _, _, bound in _KINDS
    ]
    return [*idle, _stream(work, 200_000 if quick else 1_000_000, rounds)]


def _stream(work: Path, count: int, rounds: int) -> Row:
    """Measure the stream of the `events` benchmark, with a journal that has the result of each tool."""
    script, warm_up = (
        _with_journal(work / "big.ndjson", count),
        _with_journal(work / "small.ndjson", 1000),
    )
    results = [worker("geminids", work, script, warm_up) for _ in range(rounds)]
    # The journal adds events: a thought, the tokens and the result of each tool.
    assert all(figures["count"] > count for figures in results)
    speed = Side("geminids", "events/s", tuple(figures["count"] / figures["seconds"] for figures in results))
    return Row(
        name=f"{count:,} events with a journal, events/s",
        sides=(speed,),
        figure=speed.median,
        shown=f"{speed.median:,.0f}",
        bound=300_000,
        at_least=True,
    )


def _with_journal(file: Path, count: int) -> Path:
    """Return the fake CLI of `cat_of`. It first writes a journal where the CLI stores it."""
    script = cat_of(mixed(file, count))
    journal = file.with_suffix(".jsonl")
    with journal.open("w") as out:
        out.write(json.dumps({"sessionId": "s-1", "projectHash": "0", "kind": "main"}) + "\n")
        for at in range(48, count - 1, 50):
            out.write(json.dumps(_message(at)) + "\n")
    chats = '"$GEMINI_CLI_HOME/.gemini/tmp/bench/chats"'
    put = f'mkdir -p {chats}; pwd > {chats}/../.project_root; cp "{journal}" {chats}/session-2026-s-1.jsonl\n'
    script.write_text(script.read_text().replace("exec cat", f"{put}exec cat"))
    return script


def _message(at: int) -> dict[str, Any]:
    call = f"read_file__{at}"
    part = {"functionResponse": {"id": call, "response": {"output": "x = 1\n"}}}
    thought = {"subject": "Look", "description": "I read the file.", "timestamp": _STAMP}
    return {
        "id": f"m{at}",
        "timestamp": _STAMP,
        "type": "gemini",
        "thoughts": [thought],
        "tokens": {"input": 9, "output": 7, "cached": 4, "thoughts": 5, "tool": 0, "total": 21},
        "toolCalls": [{"id": call, "name": "read_file", "result": [part], "status": "success"}],
    }


def _row(name: str, side: Side, bound: float | None) -> Row:
    share = side.median / 10_000
    return Row(name=name, sides=(side,), figure=share, shown=f"{share:.2f} %", bound=bound)


def _worker(script: Path, folder: Path, seconds: float) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.follow", str(script), str(folder), str(seconds)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout)) * 1e6


async def _measure(script: str, folder: str, seconds: float) -> float:
    async with geminids.open_run("hi", gemini=script, home="isolated", cwd=folder, grace=0.5) as agent:
        async for event in agent:
            if isinstance(event, geminids.Notice) and event.code == "session":
                break
        await anyio.sleep(0.5)
        wall, cpu = time.monotonic(), time.process_time()
        await anyio.sleep(seconds)
        return (time.process_time() - cpu) / (time.monotonic() - wall)


if __name__ == "__main__":
    _, cli, place, duration = sys.argv
    print(json.dumps(anyio.run(_measure, cli, place, float(duration))))
