"""A million small events, from the pipe of a real process to `Finished`, beside another library."""

from __future__ import annotations

from pathlib import Path

from benchmarks.stream import cat_of, mixed, worker
from benchmarks.table import Row, Side, median, say

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
        say(f"  round {number + 1} of {rounds}")
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
    fast = _speed("geminids", ours)
    hidden = _speed("geminids, two secrets to redact", redacting)
    other = _speed("lrilai-gemini-cli-sdk, to its result", theirs)
    cpu = Side("geminids, a second of its own CPU", "events/s", _rates(ours, "cpu_seconds"))
    memory = Side("geminids", "MB", tuple(one["megabytes"] for one in ours))
    their_memory = Side("lrilai-gemini-cli-sdk", "MB", tuple(one["megabytes"] for one in theirs))
    ratio = fast.median / other.median
    return [
        Row(
            name=f"{count:,} events to Finished, events/s",
            sides=(fast, cpu),
            figure=fast.median,
            shown=f"{fast.median:,.0f}",
            bound=300_000,
            at_least=True,
        ),
        Row(
            name="... with secrets in the environment, events/s",
            sides=(hidden,),
            figure=hidden.median,
            shown=f"{hidden.median:,.0f}",
            bound=300_000,
            at_least=True,
        ),
        Row(
            name="... beside lrilai-gemini-cli-sdk",
            sides=(fast, other),
            figure=ratio,
            shown=f"{ratio:.2f} x",
            bound=1.5,
            at_least=True,
        ),
        Row(
            name="... growth of memory at its peak, MB",
            sides=(memory, their_memory),
            figure=memory.median,
            shown=f"{memory.median:.1f}",
            bound=20,
        ),
    ]


def _speed(name: str, found: list[dict[str, float]]) -> Side:
    return Side(name, "events/s", _rates(found, "seconds"))


def _rates(found: list[dict[str, float]], clock: str) -> tuple[float, ...]:
    assert median([one["count"] for one in found]) > 0
    return tuple(one["count"] / one[clock] for one in found)
