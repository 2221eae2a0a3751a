"""Measure converting a journal (100 MB) to Claude messages, compared with decoding its lines.

python -m benchmarks.journal SIDE FILE   one measurement, in its own process
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks.table import Row, Side, log
from benchmarks.worker import peak
from geminids.dialects import claude
from geminids.gemini.protocol.journal.replay import replay
from geminids.gemini.protocol.journal.stream import open_journal

__all__ = ["run"]

_WORDS = (
    "the",
    "function",
    "reads",
    "journal",
    "naïve",
    "—",
    "(x < 3)",
    "{",
    '"foo"',
    "}",
    "\\",
    "\t",
    "\n",
    "x;",
)
_TIME = "2026-01-01T00:00:00.000Z"
_MEGABYTE = 1_000_000


def run(work: Path, *, quick: bool) -> list[Row]:
    rounds = 3 if quick else 7
    small = _journal(work / "journal.jsonl", 4_000 if quick else 20_000)
    big = _journal(work / "big.jsonl", 8_000 if quick else 80_000)
    names = ("decode", "claude", "streamed", "originals")
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(rounds):
        log(f"  round {number + 1} of {rounds}")
        for name in names:
            results[name].append(_worker(name, small))
    memory = _worker("streamed", big)
    size = small.stat().st_size / _MEGABYTE
    base, whole, streamed, originals = (
        Side(title, "ms", tuple(figures["seconds"] * 1000 for figures in results[name]))
        for name, title in zip(
            names,
            (
                "msgspec.json.decode of each line",
                "replay to Claude messages",
                "the same, streamed",
                "the same, with every original",
            ),
            strict=True,
        )
    )
    return [
        _ratio(f"a journal of {size:.0f} MB to Claude messages, in memory", base, whole, 1.5),
        _ratio("... streamed from the file", base, streamed, 2.2),
        _ratio("... in memory, with each `_original` as an object", base, originals, None),
        Row(
            name=f"... {big.stat().st_size / _MEGABYTE:.0f} MB streamed: peak memory, MB",
            sides=(Side("memory growth of the process", "MB", (memory["megabytes"],)),),
            figure=memory["megabytes"],
            shown=f"{memory['megabytes']:.1f}",
            bound=round(100 + 3 * _longest(big) / _MEGABYTE, 1),
        ),
    ]


def _ratio(name: str, base: Side, other: Side, bound: float | None) -> Row:
    # Compare within a round: if the machine is busy, it is busy for both sides.
    ratio = Side("", "", tuple(b / a for a, b in zip(base.figures, other.figures, strict=True))).median
    return Row(name=name, sides=(base, other), figure=ratio, shown=f"{ratio:.2f} x", bound=bound)


def _longest(file: Path) -> int:
    with file.open("rb") as lines:
        return max(map(len, lines))


def _worker(side: str, file: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.journal", side, str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _journal(file: Path, messages: int) -> Path:
    """Write a journal like the CLI's.

    It has each answer twice (without and with its tool), the tool results again, and `lastUpdated`.
    """
    rng = random.Random(4)
    with file.open("wb") as out:
        for record in _records(messages, rng):
            out.write(msgspec.json.encode(record) + b"\n")
    return file


def _records(messages: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    yield {
        "sessionId": "s",
        "projectHash": "0" * 64,
        "startTime": _TIME,
        "lastUpdated": _TIME,
        "kind": "main",
    }
    for number in range(0, messages, 4):
        yield _message(number, "user", [{"text": _text(rng, 600)}])
        answer = _message(number + 1, "gemini", _text(rng, 1200), **_thinking(rng))
        yield answer
        call = _call(number, rng)
        yield {**answer, "toolCalls": [call]}
        yield _message(number + 2, "user", call["result"])
        yield _message(number + 3, "gemini", _text(rng, 2500), **_thinking(rng))
        yield {"$set": {"lastUpdated": _TIME}}


def _message(number: int, kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"{number:08}-0000-4000-8000-000000000000",
        "timestamp": _TIME,
        "type": kind,
        "content": content,
        **fields,
    }


def _thinking(rng: random.Random) -> dict[str, Any]:
    thought = {"subject": "Look first", "description": _text(rng, 300), "timestamp": _TIME}
    tokens = {"input": 9000, "output": 70, "cached": 4000, "thoughts": 50, "tool": 0, "total": 9120}
    return {"thoughts": [thought, thought], "tokens": tokens, "model": "gemini-3-flash-preview"}


def _call(number: int, rng: random.Random) -> dict[str, Any]:
    name, args = rng.choice(
        [
            ("read_file", {"file_path": "/repo/src/a.py"}),
            ("run_shell_command", {"command": "make test", "description": "Run the tests."}),
            (
                "replace",
                {"file_path": "/repo/a.py", "old_string": _text(rng, 300), "new_string": _text(rng, 300)},
            ),
        ]
    )
    text = _text(rng, 4000)
    display: Any = text
    if name == "replace":
        display = {
            "fileDiff": _text(rng, 900),
            "fileName": "a.py",
            "originalContent": text,
            "newContent": text,
        }
    return {
        "id": f"{name}_{number}",
        "name": name,
        "args": args,
        "result": [
            {"functionResponse": {"id": f"{name}_{number}", "name": name, "response": {"output": text}}}
        ],
        "status": "success",
        "timestamp": _TIME,
        "displayName": name,
        "description": "src/a.py",
        "resultDisplay": display,
        "renderOutputAsMarkdown": True,
    }


def _text(rng: random.Random, size: int) -> str:
    return " ".join(rng.choices(_WORDS, k=size // 6))


def _decode(file: Path) -> Callable[[], int]:
    lines = file.read_bytes().splitlines()
    return lambda: len([msgspec.json.decode(line) for line in lines])


def _claude(file: Path) -> Callable[[], int]:
    lines = file.read_bytes().splitlines()
    return lambda: len(list(claude.messages(replay(lines))))


def _originals(file: Path) -> Callable[[], int]:
    lines = file.read_bytes().splitlines()
    return lambda: len([(message, message._original) for message in claude.messages(replay(lines))])


def _streamed(file: Path) -> Callable[[], int]:
    return lambda: sum(1 for _ in claude.messages(open_journal(file).messages))


def _measure(work: Callable[[], int]) -> dict[str, float]:
    before = psutil.Process().memory_info().rss
    start = time.perf_counter()
    count = work()
    seconds = time.perf_counter() - start
    return {"count": count, "seconds": seconds, "megabytes": (peak() - before) / _MEGABYTE}


if __name__ == "__main__":
    _, side, path = sys.argv
    sides = {"decode": _decode, "claude": _claude, "streamed": _streamed, "originals": _originals}
    print(json.dumps(_measure(sides[side](Path(path)))))
