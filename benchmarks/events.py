"""Read a million small events of a process up to `Finished`, compared with another library."""

from __future__ import annotations

from pathlib import Path

from benchmarks.stream import cat_of, mixed, worker
from benchmarks.table import Row, Side, log, median

__all__ = ["run"]

_SECRET = {"BENCHMARK_TOKEN": "There is no such secret", "GEMINI_API_KEY": "not-a-key-but-as-long-as-one"}


def run(work: Path, *, quick: bool) -> list[Row]:
    rounds = 3 if quick else 5
    count = 200_000 if quick else 1_000_000
    script, warm_up = cat_of(mixed(work / "big.ndjson", count)), cat_of(mixed(work / "small.ndjson", 1000))
    ours: list[dict[str, float]] = []
    redacting: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for number in range(rounds):
        log(f"  round {number + 1} of {rounds}")
        ours.append(worker("geminids", work, script, warm_up))
        theirs.append(worker("lrilai", work, script, warm_up))
        redacting.append(worker("geminids", work, script, warm_up, **_SECRET))
    return _rows(ours, redacting, theirs, count)


def _rows(
    ours: list[dict[str, float]],
    redacting: list[dict[str, float]],
    theirs: list[dict[str, float]],
    count: int,
) -> list[Row]:
    speed = _speed("geminids", ours)
    redacting_speed = _speed("geminids, two secrets to redact", redacting)
    their_speed = _speed("lrilai-gemini-cli-sdk, up to its result", theirs)
    cpu = Side("geminids, per second of CPU time", "events/s", _rates(ours, "cpu_seconds"))
    memory = Side("geminids", "MB", tuple(round_["megabytes"] for round_ in ours))
    their_memory = Side("lrilai-gemini-cli-sdk", "MB", tuple(round_["megabytes"] for round_ in theirs))
    ratio = speed.median / their_speed.median
    return [
        Row(
            name=f"{count:,} events to Finished, events/s",
            sides=(speed, cpu),
            figure=speed.median,
            shown=f"{speed.median:,.0f}",
            bound=300_000,
            at_least=True,
        ),
        Row(
            name="... with secrets in the environment, events/s",
            sides=(redacting_speed,),
            figure=redacting_speed.median,
            shown=f"{redacting_speed.median:,.0f}",
            bound=300_000,
            at_least=True,
        ),
        Row(
            name="... vs. lrilai-gemini-cli-sdk",
            sides=(speed, their_speed),
            figure=ratio,
            shown=f"{ratio:.2f} x",
            bound=1.5,
            at_least=True,
        ),
        Row(
            name="... peak memory growth, MB",
            sides=(memory, their_memory),
            figure=memory.median,
            shown=f"{memory.median:.1f}",
            bound=20,
        ),
    ]


def _speed(name: str, rounds: list[dict[str, float]]) -> Side:
    return Side(name, "events/s", _rates(rounds, "seconds"))


def _rates(rounds: list[dict[str, float]], clock: str) -> tuple[float, ...]:
    assert median([figures["count"] for figures in rounds]) > 0
    return tuple(figures["count"] / figures[clock] for figures in rounds)
