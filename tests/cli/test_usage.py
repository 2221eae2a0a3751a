"""`geminids usage`, as a user calls it."""

from __future__ import annotations

import csv
import json
import os
import pty
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recordings import RECORDINGS


class Machine:
    """A home with the recorded sessions of three releases."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.home.mkdir()

    def fill(self) -> None:
        for release in ("0.61.0", "0.41.2", "0.24.0"):
            place = self.home / ".gemini" / "tmp" / f"app-{release}"
            shutil.copytree(RECORDINGS / release, place / "chats", ignore=shutil.ignore_patterns("acp"))
            (place / ".project_root").write_text(f"/repo/{release}")

    def call(self, *words: str, out: Any = subprocess.PIPE, **env: str) -> subprocess.CompletedProcess[str]:
        places = {"HOME": str(self.home), "GEMINIDS_HOME": str(self.root / "geminids"), "TZ": "UTC"}
        own = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        return subprocess.run(
            [sys.executable, "-m", "geminids", "usage", *words],
            cwd=self.root,
            env={**own, "PYTHONUTF8": "1", "TERM": "xterm-256color", **places, **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        )

    def told(self, *words: str, **env: str) -> str:
        ran = self.call(*words, **env)
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr == ""
        return ran.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.told("--json", *words))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def full(machine: Machine) -> Machine:
    machine.fill()
    return machine


def test_empty_machine(machine: Machine) -> None:
    """Where there is nothing, one sentence says so, and that is no failure."""
    assert machine.told().startswith("Gemini CLI has used nothing on this machine")
    assert machine.json()["rows"] == [] and machine.json()["total"]["usd"] == 0
    assert machine.told("--csv").splitlines()[1:] == []
    assert not (machine.root / "geminids").exists()


def test_json(full: Machine) -> None:
    """Days and models, with their tokens and list price; the rows add up to the total."""
    told = full.json()
    assert told["by"] == ["day", "model"]
    assert {row["model"] for row in told["rows"]} >= {"gemini-3.8-flash", "gemini-3-flash-preview"}
    for name in ("requests", "input", "cached", "output", "thinking", "total"):
        assert told["total"][name] == sum(row[name] for row in told["rows"]) > 0
    assert told["total"]["input"] == 100 * told["total"]["requests"]
    assert told["total"]["usd"] > 0 and told["basis"] == "exact"
    assert "router" in told["not_counted"]


def test_by(full: Machine) -> None:
    """Any of the four, in the order that was asked for; a subagent's requests are its parent's."""
    rows = full.json("--by", "project,session")["rows"]
    assert list(rows[0])[:2] == ["project", "session"]
    of_agent = [row["requests"] for row in rows if row["session"].startswith("0e8b0bd4")]
    assert len(of_agent) == 1 and of_agent[0] > 2
    assert {row["project"] for row in rows} == {"/repo/0.61.0", "/repo/0.41.2", "/repo/0.24.0"}


def test_project_and_days(full: Machine) -> None:
    """One folder's alone; and days, both included."""
    everything = full.json()["total"]["requests"]
    one = full.json("--project", "/repo/0.24.0")["total"]["requests"]
    assert 0 < one < everything
    assert full.json("--since", "2026-11-16", "--until", "20261116")["total"]["requests"] > 0
    assert full.json("--until", "2020-01-01")["rows"] == []
    assert "nothing in /repo/0.24.0 until 2020-01-01" in full.told(
        "--project", "/repo/0.24.0", "--until", "2020-01-01"
    )


def test_csv(full: Machine) -> None:
    """The same numbers, for a spreadsheet."""
    rows = list(csv.DictReader(full.told("--csv", "--by", "model").splitlines()))
    told = full.json("--by", "model")["rows"]
    assert [(row["model"], int(row["total"])) for row in rows] == [
        (row["model"], row["total"]) for row in told
    ]
    assert [float(row["usd"]) for row in rows] == [row["usd"] for row in told]


def test_page(full: Machine) -> None:
    """A page that only its owner can read; not over another file, unless asked."""
    page = full.root / "usage.html"
    ran = full.call("--html", str(page))
    assert (ran.returncode, ran.stdout) == (0, "") and "wrote" in ran.stderr
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert page.read_text().startswith("<!doctype html>")
    assert full.call("--html", str(page)).returncode == 1
    assert full.call("--html", str(page), "--force").returncode == 0


def test_terminal(full: Machine) -> None:
    """In a terminal there are bars; in a pipe the table alone."""
    ours, theirs = pty.openpty()
    try:
        assert full.call(out=theirs, COLUMNS="90", NO_COLOR="1").returncode == 0
        os.set_blocking(ours, False)
        seen = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "█" in seen and "Cost by day" in seen and "TOTAL" in seen
    assert "█" not in full.told()


def test_own_prices(full: Machine) -> None:
    """Prices from a file go before the list prices."""
    prices = full.root / "prices.toml"
    prices.write_text('[[models]]\nmodel = "*"\ninput = 1000000\noutput = 0\n')
    assert full.json("--prices", str(prices))["total"]["usd"] == full.json()["total"]["input"]


def test_unknown_price(full: Machine) -> None:
    """A model that nobody knows the price of is named, and the cost is that of the others."""
    file = next((full.home / ".gemini/tmp/app-0.41.2/chats").glob("*-4ea6ce31.jsonl"))
    file.write_text(file.read_text().replace("gemini-3-flash-preview", "of-the-house"))
    told = full.json("--by", "model")
    assert told["unpriced_models"] == ["of-the-house"]
    assert [row["usd"] for row in told["rows"] if row["model"] == "of-the-house"] == [None]
    assert told["total"]["usd"] > 0 and told["total"]["usd_complete"] is False
    assert "≥$" in full.told()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--since", "yesterdayish"), "--since: 'yesterdayish' is no day"),
        (("--until", "2026-13-01"), "--until: '2026-13-01' is no day"),
        (("--since", "999999w"), "--since: '999999w' is no day"),
        (
            ("--since", "2026-02-02", "--until", "2026-02-01"),
            "--until 2026-02-01 is before --since 2026-02-02",
        ),
        (("--by", "day,hour"), "--by: hour is none of day, model, project, session"),
        (("--json", "--csv"), "one of them"),
        (("--home", "/no/such/home"), "--home: /no/such/home is not a folder"),
    ],
)
def test_refused(machine: Machine, words: tuple[str, ...], what: str) -> None:
    """What makes no sense is refused with one clear error."""
    ran = machine.call(*words)
    assert ran.returncode == 2 and what in ran.stderr and "Traceback" not in ran.stderr
