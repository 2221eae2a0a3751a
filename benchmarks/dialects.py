"""Measure speed and memory of each dialect with many events.

There are two mixes. "text" is a long answer: text deltas, and a tool call with its result every
fifty events. "tools" is the worst case: only calls, results and tokens. The time is CPU time of one
core, without reading the events. otel is measured without an SDK (our part) and with one, which
takes most of the time: it creates a span for every call and every request.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.stream import mixed
from benchmarks.table import Row, Side, log
from geminids.dialects.convert import EventsEncoder, converted
from geminids.dialects.dialect import DIALECTS
from geminids.events.model import Finished, Started, TokensUsed, ToolFinished, ToolStarted, encode_event
from geminids.run.recordings.load import open_recording

__all__ = ["run"]

_MIN_EVENTS_PER_SECOND = 200_000
_SDK = "otel --sdk"
_ROUNDS = 3
# These dialects write one document, or a last line with the whole text (untether) or the tokens of
# each request (agent-events). They keep up to `_MAX_COPIES` copies of it in memory. The other dialects
# write each event immediately.
_BUFFERING = ("adapter", "agent-events", "atif", "untether")
_MAX_MEGABYTES = 20
_MAX_COPIES = 5


def run(work: Path, *, quick: bool) -> list[Row]:
    small = _text(work, "small", 2000)
    rows: list[Row] = []
    for mix, write_events, count in (
        ("text", _text, 200_000 if quick else 1_000_000),
        ("tools", _tools, 30_000 if quick else 150_000),
    ):
        rows += _measure_mix(mix, write_events(work, mix, count), small)
    return rows


def _measure_mix(mix: str, big: Path, small: Path) -> list[Row]:
    megabytes = [_measure("reading", big, small)["megabytes"] for _ in range(_ROUNDS)]
    reading = Side("only reading the events", "MB", tuple(megabytes))
    rows: list[Row] = []
    for name in ("events", *sorted((*DIALECTS, "claude --partial", "otel", _SDK))):
        log(f"  {mix}: {name}")
        rows += _rows(mix, name, [_measure(name, big, small) for _ in range(_ROUNDS)], reading)
    return rows


def _text(work: Path, name: str, count: int) -> Path:
    """Write the events of a text run, as `--save-events` does."""
    file = work / f"{name}.jsonl"
    with mixed(work / f"{name}.ndjson", count).open("rb") as source, file.open("wb") as out:
        out.writelines(converted(EventsEncoder, open_recording(source).batches()))
    return file


def _tools(work: Path, name: str, count: int) -> Path:
    """Write a run with a call, its result and its tokens in each turn."""
    ids: dict[str, Any] = {"run_id": "run-1", "session_id": "s-1"}
    file = work / f"{name}.jsonl"
    with file.open("wb") as out:
        at: dict[str, Any] = {"at": 0, "seq": 0, "attempt": 1, "turn": 1}
        first = Started(
            **at, **ids, model="m", cwd="/repo", cli_version="0.61.0", transport="headless", pid=1
        )
        out.write(encode_event(first) + b"\n")
        for turn in range(1, count // 3 + 1):
            for place, event in enumerate(_turn(turn)):
                now = {"at": 3 * turn + place, "seq": 3 * turn - 2 + place, "attempt": 1, "turn": turn}
                out.write(encode_event(event(**now)) + b"\n")
        last: dict[str, Any] = {
            **at,
            **ids,
            "outcome": "success",
            "failure": None,
            "reason": None,
            "usage": None,
        }
        end = Finished(
            **last,
            text="",
            answer="",
            clear_session=False,
            attempts=1,
            exit_code=0,
            duration_ms=1,
            ended=(),
            complete=True,
        )
        out.write(encode_event(end) + b"\n")
    return file


def _turn(number: int) -> tuple[Any, ...]:
    call: dict[str, Any] = {"id": f"read_file__{number}", "name": "read_file"}
    arguments = {"file_path": f"src/module_{number}.py"}
    return (
        lambda **now: ToolStarted(**now, **call, kind="read", title="Read", input=arguments),
        lambda **now: ToolFinished(
            **now, **call, input=arguments, status="ok", output="x = 1\n", duration_ms=3
        ),
        lambda **now: TokensUsed(
            **now, model="m", role="main", input=900, cached=300, output=20, thinking=7, tool=0
        ),
    )


def _measure(name: str, big: Path, small: Path) -> dict[str, float]:
    argv = [sys.executable, "-m", "benchmarks.dialect_worker", name, str(big), str(small)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise SystemExit(f"benchmarks.dialect_worker {name} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _rows(mix: str, name: str, results: list[dict[str, float]], reading: Side) -> list[Row]:
    speed = Side(name, "events/s", tuple(figures["count"] / figures["seconds"] for figures in results))
    memory = Side(name, "MB", tuple(figures["megabytes"] for figures in results))
    count, last = results[0]["count"], results[0]["last"]
    added = memory.median - reading.median
    is_sdk_bound = mix == "tools" and name == _SDK
    return [
        Row(
            name=f"{count:,.0f} events of {mix} as {name}, events/s",
            sides=(speed,),
            figure=speed.median,
            shown=f"{speed.median:,.0f}",
            bound=None if is_sdk_bound else _MIN_EVENTS_PER_SECOND,
            at_least=True,
            note="time of the SDK (a span for two of three events); see otel" if is_sdk_bound else "",
        ),
        Row(
            name="... peak memory, more than reading, MB",
            sides=(memory, reading),
            figure=added,
            shown=f"{added:.1f}",
            bound=_MAX_MEGABYTES + (_MAX_COPIES * last if name in _BUFFERING else 0),
            note=f"the last output has {last:.1f} MB" if name in _BUFFERING else "",
        ),
    ]
