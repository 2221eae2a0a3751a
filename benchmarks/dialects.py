"""Many events in each dialect: how fast, and with how much memory.

Two mixes. "text": pieces of text, a tool with its result for every fifty, as a long answer has them. "tools": nothing
but calls, results and tokens, the worst that a run can do. Reading the events is not counted, and the time is that of
one core. otel is measured without an SDK, which is what is ours, and with one, where most of the time is the SDK's: it
makes a span of every call and of every request.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.stream import mixed
from benchmarks.table import Row, Side, say
from geminids.dialects.convert import EventsEncoder, converted
from geminids.dialects.dialect import DIALECTS
from geminids.events.model import Finished, Started, TokensUsed, ToolFinished, ToolStarted, encode_event
from geminids.run.recordings.load import open_recording

__all__ = ["run"]

_LEAST = 200_000
_SDK = "otel --sdk"
_ROUNDS = 3
# What they say is out when it is known. The others have a document, or a last line with the whole text (untether) or
# with each request's tokens (agent-events): that they hold, and may take some copies of it.
_HOLD = ("adapter", "agent-events", "atif", "untether")
_MOST_MEGABYTES = 20
_MOST_COPIES = 5


def run(work: Path, *, quick: bool) -> list[Row]:
    small = _text(work, "small", 2000)
    rows: list[Row] = []
    for mix, file, count in (
        ("text", _text, 200_000 if quick else 1_000_000),
        ("tools", _tools, 30_000 if quick else 150_000),
    ):
        rows += _of_mix(mix, file(work, mix, count), small)
    return rows


def _of_mix(mix: str, big: Path, small: Path) -> list[Row]:
    reading = [_measured("reading", big, small)["megabytes"] for _ in range(_ROUNDS)]
    alone = Side("reading the events alone", "MB", tuple(reading))
    rows: list[Row] = []
    for name in ("events", *sorted((*DIALECTS, "claude --partial", "otel", _SDK))):
        say(f"  {mix}: {name}")
        rows += _rows(mix, name, [_measured(name, big, small) for _ in range(_ROUNDS)], alone)
    return rows


def _text(work: Path, name: str, count: int) -> Path:
    """The events of a run as `--save-events` has them."""
    file = work / f"{name}.jsonl"
    with mixed(work / f"{name}.ndjson", count).open("rb") as source, file.open("wb") as out:
        out.writelines(converted(EventsEncoder, open_recording(source).batches()))
    return file


def _tools(work: Path, name: str, count: int) -> Path:
    """A run of a call, its result and its tokens in each turn, as a release with a journal tells it."""
    ids: dict[str, Any] = {"run_id": "run-1", "session_id": "s-1"}
    file = work / f"{name}.jsonl"
    with file.open("wb") as out:
        at: dict[str, Any] = {"at": 0, "seq": 0, "attempt": 1, "turn": 1}
        first = Started(**at, **ids, model="m", cwd="/repo", cli_version="0.61.0", lane="headless", pid=1)
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
    given = {"file_path": f"src/module_{number}.py"}
    return (
        lambda **now: ToolStarted(**now, **call, kind="read", title="Read", input=given),
        lambda **now: ToolFinished(**now, **call, input=given, status="ok", output="x = 1\n", duration_ms=3),
        lambda **now: TokensUsed(
            **now, model="m", role="main", input=900, cached=300, output=20, thinking=7, tool=0
        ),
    )


def _measured(name: str, big: Path, small: Path) -> dict[str, float]:
    argv = [sys.executable, "-m", "benchmarks.dialect_worker", name, str(big), str(small)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise SystemExit(f"benchmarks.dialect_worker {name} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _rows(mix: str, name: str, found: list[dict[str, float]], alone: Side) -> list[Row]:
    speed = Side(name, "events/s", tuple(one["count"] / one["seconds"] for one in found))
    memory = Side(name, "MB", tuple(one["megabytes"] for one in found))
    count, more, last = found[0]["count"], memory.median - alone.median, found[0]["last"]
    spans = mix == "tools" and name == _SDK
    return [
        Row(
            name=f"{count:,.0f} events of {mix} as {name}, events/s",
            sides=(speed,),
            figure=speed.median,
            shown=f"{speed.median:,.0f}",
            bound=None if spans else _LEAST,
            at_least=True,
            note="a span for two of three events: the SDK's time, see otel for ours" if spans else "",
        ),
        Row(
            name="... memory at its peak, over that of reading, MB",
            sides=(memory, alone),
            figure=more,
            shown=f"{more:.1f}",
            bound=_MOST_MEGABYTES + (_MOST_COPIES * last if name in _HOLD else 0),
            note=f"its last word has {last:.1f} MB" if name in _HOLD else "",
        ),
    ]
