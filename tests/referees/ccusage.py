"""Referee: compares the token counts of `geminids usage` with those of `ccusage`.

python tests/referees/ccusage.py PATH/TO/ccusage

The sessions are recordings of the real CLI (0.61.0, 0.41.2, 0.32.1, 0.24.0, and 0.11 if there are
any). Every count by day and model must be equal. Then the referee adds a fork of one session and a
session that a newer release took over. ccusage counts their requests twice, and geminids must not.
The program exits with 1 and a message at the first unexplained difference.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import geminids

RECORDINGS = Path(__file__).parents[1] / "recordings"
FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "sessions-0.11" / "full"
RELEASES = ("0.61.0", "0.41.2", "0.32.1", "0.24.0")
Counts = Counter[tuple[str, str, str]]


def main(referee: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        _copy_recordings(home)
        ours, theirs = _ours(home), _theirs(referee, home)
        if ours != theirs or not ours:
            return _report_difference("recorded sessions", ours, theirs)
        print(f"ccusage and geminids count the same {sum(ours.values()):,} tokens ({len(ours)} sums)")
        copied = _add_copies(home)
        ours_with_copies, theirs_with_copies = _ours(home), _theirs(referee, home)
        if ours_with_copies != ours:
            return _report_difference(
                "copied sessions, with and without copies by geminids", ours_with_copies, ours
            )
        if theirs_with_copies != ours + copied:
            return _report_difference("copied sessions", ours + copied, theirs_with_copies)
    print(f"ccusage counts {sum(copied.values()):,} tokens of two copies twice; geminids counts them once")
    return 0


def _copy_recordings(home: Path) -> None:
    for release in RELEASES:
        for chats in (RECORDINGS / release, RECORDINGS / release / "acp" / "chats"):
            if chats.is_dir():
                slug = f"app-{release}-{chats.name}".replace(".", "-")
                _copy_chats(home, slug, chats)
    if FIXTURES.is_dir():
        _copy_chats(home, "app-0-11", FIXTURES)


def _copy_chats(home: Path, slug: str, source: Path) -> None:
    project = home / ".gemini" / "tmp" / slug
    shutil.copytree(source, project / "chats", ignore=shutil.ignore_patterns("acp"))
    (project / ".project_root").write_text(f"/repo/{slug}")


def _add_copies(home: Path) -> Counts:
    """Add a fork and a session that a newer release took over; return their token counts.
    A newer release rewrites a `.json` session as `.jsonl`."""
    session = next((home / ".gemini/tmp").glob("app-0-61-0-*/chats/*-2442f7e8.jsonl"))
    forked = Path(geminids.sessions.fork(session).file)
    old = next((home / ".gemini/tmp").glob("app-0-24-0-*/chats/*-b957c4a2.json"))
    whole = json.loads(old.read_text())
    taken_over = old.with_suffix(".jsonl")
    header = {name: value for name, value in whole.items() if name != "messages"}
    taken_over.write_text("".join(json.dumps(record) + "\n" for record in (header, *whole["messages"])))
    return _counts_in_file(forked) + _counts_in_file(taken_over)


def _counts_in_file(file: Path) -> Counts:
    """Return the token counts in one session file."""
    counts: Counts = Counter()
    for line in file.read_text().splitlines():
        record = json.loads(line)
        if tokens := record.get("tokens"):
            _add(counts, record["timestamp"][:10], record["model"], tokens)
    return counts


def _add(counts: Counts, day: str, model: str, tokens: dict[str, int]) -> None:
    kinds = {
        "input": tokens["input"] - tokens["cached"] + tokens["tool"],
        "cached": tokens["cached"],
        "output": tokens["output"],
        "thinking": tokens.get("thinking", tokens.get("thoughts", 0)),
    }
    for kind, number in kinds.items():
        if number:
            # ccusage reports thinking tokens by day, but not by model.
            counts[day, "" if kind == "thinking" else model, kind] += number


def _ours(home: Path) -> Counts:
    report = _run([sys.executable, "-m", "geminids", "usage", "--json"], home)
    counts: Counts = Counter()
    for row in report["rows"]:
        _add(counts, row["day"], row["model"], row)
    return counts


def _theirs(referee: str, home: Path) -> Counts:
    report = _run([referee, "gemini", "daily", "--json", "--offline"], home)
    counts: Counts = Counter()
    for day in report["daily"]:
        for model in day["modelBreakdowns"]:
            kinds = {"input": "inputTokens", "cached": "cacheReadTokens", "output": "outputTokens"}
            for kind, name in kinds.items():
                counts[day["date"], model["modelName"], kind] += model[name]
        shown = sum(day[name] for name in ("inputTokens", "cacheReadTokens", "outputTokens"))
        counts[day["date"], "", "thinking"] += day["totalTokens"] - shown
    return +counts


def _run(command: list[str], home: Path) -> Any:
    environ = {
        "HOME": str(home),
        "TZ": "UTC",
        "PATH": os.environ["PATH"],
        "GEMINIDS_HOME": str(home / "none"),
    }
    if "PYTHONPATH" in os.environ:
        environ["PYTHONPATH"] = os.environ["PYTHONPATH"]
    completed = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=60)
    return json.loads(completed.stdout)


def _report_difference(subject: str, ours: Counts, theirs: Counts) -> int:
    print(
        f"{subject}: only in geminids {+(ours - theirs)}, only in ccusage {+(theirs - ours)}", file=sys.stderr
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
