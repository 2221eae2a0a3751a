"""Measure listing 10,000 sessions, and following a journal that does not change."""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.table import Row, Side, log
from geminids.config.paths import Places
from geminids.sessions import Follower, find

__all__ = ["run"]

# A run polls every 50 ms.
_POLLS_PER_SECOND = 20


def run(work: Path, *, quick: bool) -> list[Row]:
    rounds = 3 if quick else 5
    rows = []
    for name, count, turns in (
        ("small", 2000 if quick else 10_000, 4),
        ("100 KB", 200 if quick else 1000, 120),
    ):
        log(f"  {count} sessions, {name} ...")
        home = _home(work / name, count, turns)
        microseconds = tuple(1000 * _list(home, count) for _ in range(rounds))
        side = Side(f"find(), {count:,} sessions ({name})", "µs per session", microseconds)
        rows.append(
            Row(
                name=f"listing {count:,} {name} sessions, ms per session",
                sides=(side,),
                figure=side.median / 1000,
                shown=f"{side.median / 1000:.3f}",
                bound=0.2,
            )
        )
    return [*rows, _following(work, rounds)]


def _home(home: Path, count: int, turns: int) -> Path:
    chats = home / ".gemini" / "tmp" / "app" / "chats"
    chats.mkdir(parents=True)
    (chats.parent / ".project_root").write_text("/app")
    for number in range(count):
        session_id = f"{number:08x}-7033-438d-a978-a361d8031f47"
        (chats / f"session-2026-10-01T10-00-{session_id[:8]}.jsonl").write_text(_journal(session_id, turns))
    return home


def _journal(session_id: str, turns: int) -> str:
    stamp = "2026-10-01T10:00:00.000Z"
    records: list[object] = [
        {
            "sessionId": session_id,
            "projectHash": "0" * 64,
            "startTime": stamp,
            "lastUpdated": stamp,
            "kind": "main",
        }
    ]
    for turn in range(turns):
        records += [
            {
                "id": f"u{turn}",
                "timestamp": stamp,
                "type": "user",
                "content": [{"text": "Please do it. " * 10}],
            },
            {
                "id": f"g{turn}",
                "timestamp": stamp,
                "type": "gemini",
                "content": "It is done. " * 20,
                "thoughts": [{"subject": "Doing", "description": "I do it.", "timestamp": stamp}],
                "tokens": {"input": 1, "output": 1, "cached": 0, "thoughts": 0, "tool": 0, "total": 2},
                "model": "gemini-3.8-flash",
            },
            {"$set": {"lastUpdated": stamp}},
        ]
    return "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)


def _list(home: Path, count: int) -> float:
    """List the sessions; return the milliseconds per session."""
    began = time.perf_counter()
    sessions = find("/app", home=str(home), environ={}, places=Places(home / "geminids"))
    took = time.perf_counter() - began
    assert len(sessions) == count
    return took / count * 1000


def _following(work: Path, rounds: int) -> Row:
    file = work / "idle.jsonl"
    file.write_text(_journal("idle", 10))
    follower = Follower(file)
    follower.read_new()
    polls = 20_000
    figures = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(polls):
            follower.read_new()
        figures.append((time.process_time() - began) / polls * _POLLS_PER_SECOND * 100)
    side = Side("Follower.read_new(), nothing new", "% of a core", tuple(figures))
    return Row(
        name=f"following an idle journal, {_POLLS_PER_SECOND} polls per second, % of a core",
        sides=(side,),
        figure=side.median,
        shown=f"{side.median:.4f}",
        bound=1,
    )
