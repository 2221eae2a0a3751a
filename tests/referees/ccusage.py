"""A referee that is not ours: `ccusage` counts the tokens of the same sessions as `geminids usage`.

python tests/referees/ccusage.py PATH/TO/ccusage

Sessions that the real CLI wrote (0.61.0, 0.41.2, 0.32.1, 0.24.0, and 0.11 where there are some): every count of a day
and a model is the same. Then a fork of one of them, and a session that a newer release took over: ccusage counts their
requests twice, and we do not.
Exits with 1 and a message at the first count that is neither equal nor explained.
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
        _fill(home)
        ours, theirs = _ours(home), _theirs(referee, home)
        if ours != theirs or not ours:
            return _lost("the recorded sessions", ours, theirs)
        print(
            f"ccusage counts the same {sum(ours.values()):,} tokens in {len(ours)} sums by day, model and kind"
        )
        twice = _copies(home)
        again, more = _ours(home), _theirs(referee, home)
        if again != ours:
            return _lost("copies of sessions, by us", again, ours)
        if more != ours + twice:
            return _lost("copies of sessions", ours + twice, more)
    print(f"of two copies it counts {sum(twice.values()):,} tokens a second time, and geminids does not")
    return 0


def _fill(home: Path) -> None:
    for release in RELEASES:
        for chats in (RECORDINGS / release, RECORDINGS / release / "acp" / "chats"):
            if chats.is_dir():
                slug = f"app-{release}-{chats.name}".replace(".", "-")
                _put(home, slug, chats)
    if FIXTURES.is_dir():
        _put(home, "app-0-11", FIXTURES)


def _put(home: Path, slug: str, source: Path) -> None:
    place = home / ".gemini" / "tmp" / slug
    shutil.copytree(source, place / "chats", ignore=shutil.ignore_patterns("acp"))
    (place / ".project_root").write_text(f"/repo/{slug}")


def _copies(home: Path) -> Counts:
    """A fork, by us; and a `.json` session continued by a newer release, which writes it anew as `.jsonl`."""
    talk = next((home / ".gemini/tmp").glob("app-0-61-0-*/chats/*-2442f7e8.jsonl"))
    forked = Path(geminids.sessions.fork(talk).file)
    old = next((home / ".gemini/tmp").glob("app-0-24-0-*/chats/*-b957c4a2.json"))
    whole = json.loads(old.read_text())
    taken_over = old.with_suffix(".jsonl")
    header = {name: value for name, value in whole.items() if name != "messages"}
    taken_over.write_text("".join(json.dumps(record) + "\n" for record in (header, *whole["messages"])))
    return _counts(forked) + _counts(taken_over)


def _counts(file: Path) -> Counts:
    """What a file holds by itself."""
    found: Counts = Counter()
    for line in file.read_text().splitlines():
        record = json.loads(line)
        if tokens := record.get("tokens"):
            _add(found, record["timestamp"][:10], record["model"], tokens)
    return found


def _add(found: Counts, day: str, model: str, tokens: dict[str, int]) -> None:
    kinds = {
        "input": tokens["input"] - tokens["cached"] + tokens["tool"],
        "cached": tokens["cached"],
        "output": tokens["output"],
        "thinking": tokens.get("thinking", tokens.get("thoughts", 0)),
    }
    for kind, number in kinds.items():
        if number:
            # Of thinking, ccusage tells how much there was on a day, and not by which model.
            found[day, "" if kind == "thinking" else model, kind] += number


def _ours(home: Path) -> Counts:
    told = _run([sys.executable, "-m", "geminids", "usage", "--json"], home)
    found: Counts = Counter()
    for row in told["rows"]:
        _add(found, row["day"], row["model"], row)
    return found


def _theirs(referee: str, home: Path) -> Counts:
    told = _run([referee, "gemini", "daily", "--json", "--offline"], home)
    found: Counts = Counter()
    for day in told["daily"]:
        for model in day["modelBreakdowns"]:
            kinds = {"input": "inputTokens", "cached": "cacheReadTokens", "output": "outputTokens"}
            for kind, name in kinds.items():
                found[day["date"], model["modelName"], kind] += model[name]
        shown = sum(day[name] for name in ("inputTokens", "cacheReadTokens", "outputTokens"))
        found[day["date"], "", "thinking"] += day["totalTokens"] - shown
    return +found


def _run(command: list[str], home: Path) -> Any:
    environ = {
        "HOME": str(home),
        "TZ": "UTC",
        "PATH": os.environ["PATH"],
        "GEMINIDS_HOME": str(home / "none"),
    }
    if "PYTHONPATH" in os.environ:
        environ["PYTHONPATH"] = os.environ["PYTHONPATH"]
    ran = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=60)
    return json.loads(ran.stdout)


def _lost(what: str, ours: Counts, theirs: Counts) -> int:
    print(f"{what}: more by geminids {+(ours - theirs)}, more by ccusage {+(theirs - ours)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
