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

from geminids.config.paths import Places
from geminids.gateway.request_log import LoggedRequest, RequestLog
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
    assert machine.told().startswith("No requests of Gemini CLI found on this machine")
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
    assert "found in /repo/0.24.0 until 2020-01-01" in full.told(
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


def test_page_that_cannot_be_written(full: Machine) -> None:
    """One clear error, which names the option that there is."""
    ran = full.call("--html", "/no/such/folder/page.html")
    assert ran.returncode == 1 and "/no/such/folder/page.html" in ran.stderr
    assert "--html" in ran.stderr and "--out" not in ran.stderr and "Traceback" not in ran.stderr


def test_folder_that_is_gone(full: Machine) -> None:
    """Who calls it in a folder that was deleted gets the report all the same; only a relative path makes no sense."""
    code = (
        "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        "from geminids.cli import main; sys.argv[1:] = ['usage', '--json', *sys.argv[1:]]; main()"
    )
    environ = {**os.environ, "HOME": str(full.home), "GEMINIDS_HOME": str(full.root / "geminids")}
    for words, code_of_exit, what in (
        ((), 0, '"rows"'),
        (("--project", "x"), 2, "the current folder no longer exists"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", code, *words], cwd=full.root, env=environ, capture_output=True, text=True
        )
        assert ran.returncode == code_of_exit and what in ran.stdout + ran.stderr, ran.stderr
        assert "Traceback" not in ran.stderr


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


def test_configured_prices(full: Machine) -> None:
    """`prices` of the user's configuration and its variable hold here as in a run; `--prices` goes before both."""
    dear, cheap = full.root / "dear.toml", full.root / "cheap.toml"
    dear.write_text('[[models]]\nmodel = "*"\ninput = 1000000\noutput = 0\n')
    cheap.write_text('[[models]]\nmodel = "*"\ninput = 0\noutput = 0\n')
    config = full.root / "config.toml"
    config.write_text('[gemini]\nprices = "dear.toml"\n')
    told = json.loads(full.told("--json", GEMINIDS_CONFIG=str(config)))
    assert told["total"]["usd"] == told["total"]["input"] and told["prices"] == str(dear)
    assert f"by {dear}" in full.told(GEMINIDS_CONFIG=str(config))
    for words, env in (((), {"GEMINIDS_PRICES": str(cheap)}), (("--prices", str(cheap)), {})):
        told = json.loads(full.told("--json", *words, GEMINIDS_CONFIG=str(config), **env))
        assert told["total"]["usd"] == 0 and told["prices"] == str(cheap)
    assert full.json()["prices"] is None


def test_prices_of_a_project_have_no_power(full: Machine) -> None:
    """A repository's own file cannot say what things cost, as it cannot in a run."""
    (full.root / "prices.toml").write_text('[[models]]\nmodel = "*"\ninput = 0\noutput = 0\n')
    (full.root / "geminids.toml").write_text('[gemini]\nprices = "prices.toml"\n')
    ran = full.call("--json")
    assert ran.returncode == 0 and json.loads(ran.stdout)["total"]["usd"] > 0


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "No such file"),
        ("models = 3", "Expected `array`"),
        ('[[models]]\nmodel = "x"\ninput = -1\noutput = 0', "a price must be a number of 0 or more"),
        ("\0", "prices.toml: "),
    ],
)
def test_bad_prices(machine: Machine, text: str | None, what: str) -> None:
    """A table that cannot be used is one clear error, with the file's name and what a line looks like."""
    prices = machine.root / "prices.toml"
    if text is not None:
        prices.write_text(text)
    ran = machine.call("--prices", str(prices))
    assert ran.returncode != 0 and what in ran.stderr and "[[models]]" in ran.stderr
    assert "Traceback" not in ran.stderr and "prices.toml" in ran.stderr


def test_the_request_log(full: Machine) -> None:
    """Requests that no session file holds are counted, and shown apart; with `--home`, those of its sessions only."""
    session = next(row["session"] for row in full.json("--by", "session")["rows"])
    before = full.json()
    names = ("other_requests", "other_tokens", "discarded_requests", "discarded_tokens", "unknown_requests")
    assert [before["total"][name] for name in names] == [0] * 5 and before["basis"] == "exact"
    assert "OTHER" not in full.told() and "Not included" in full.told()
    places = Places(full.root / "geminids")
    for number, (whose, project) in enumerate([(session, "/repo/here"), ("gone", "/repo/gone")]):
        log = RequestLog(f"r{number}", lambda where=(whose, project): where, free=False, places=places)  # type: ignore[misc]
        counts = {"input": 90, "cached": 0, "output": 10, "thinking": 0, "tool": 0}
        for request, role in enumerate(("router", "main", "search")):
            facts = LoggedRequest(
                at=1_794_800_000_000,
                run="",
                request=request,
                role=role,
                model="gemini-2.5-flash",
                status=200,
                **({} if role == "search" else counts),  # type: ignore[arg-type]
            )
            assert log.add(facts) is None
        assert log.discarded(1) is None
    report = full.json()
    after = report["total"]
    assert after["requests"] == before["total"]["requests"] + 6
    assert after["total"] == before["total"]["total"] + 400 and after["usd"] > before["total"]["usd"]
    assert [after[name] for name in names] == [4, 200, 2, 200, 2] and report["basis"] == "estimate"
    words = " ".join(full.told().split())
    assert "OTHER DISCARDED" in words
    assert "loop checks): 4 requests, 200 tokens" in words and "threw away: 2 requests, 200 tokens" in words
    assert "2 requests ended before the API reported the tokens" in words
    assert full.json("--home", "user")["total"]["other_requests"] == 2
    assert full.json("--project", "/repo/gone")["total"]["discarded_requests"] == 1
    assert full.json("--until", "2026-01-01")["total"]["other_requests"] == 0
    rows = list(csv.DictReader(full.told("--csv", "--by", "project").splitlines()))
    assert {row["project"]: row["discarded_requests"] for row in rows}["/repo/gone"] == "1"


def test_the_library_is_not_loaded_again(full: Machine) -> None:
    """The second report needs no library: what it said is remembered."""
    code = "import sys; from geminids.cli import main; sys.argv[1:] = ['usage', '--json']\n"
    code += "try: main()\nfinally: print('genai_prices' in sys.modules, file=sys.stderr)"
    for loaded in ("True", "False"):
        environ = {**os.environ, "HOME": str(full.home), "GEMINIDS_HOME": str(full.root / "geminids")}
        ran = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
        assert ran.stderr.split() == [loaded] and json.loads(ran.stdout)["total"]["usd"] > 0


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
        (("--since", "yesterdayish"), "--since: 'yesterdayish' is not a day"),
        (("--until", "2026-13-01"), "--until: '2026-13-01' is not a day"),
        (("--since", "999999w"), "--since: '999999w' is not a day"),
        (
            ("--since", "2026-02-02", "--until", "2026-02-01"),
            "--until 2026-02-01 is before --since 2026-02-02",
        ),
        (("--by", "day,hour"), "--by: hour is not one of day, model, project, session"),
        (("--by", ""), "--by: '' is not one of"),
        (("--project", ""), "--project: the path is empty"),
        (("--html", ""), "--html: the path is empty"),
        (("--prices", ""), "--prices: the path is empty"),
        (("--json", "--csv"), "cannot be used together"),
        (("--csv", "--html", "page.html"), "cannot be used together"),
        (("--home", "/no/such/home"), "--home: /no/such/home is not a folder"),
    ],
)
def test_refused(machine: Machine, words: tuple[str, ...], what: str) -> None:
    """What makes no sense is refused with one clear error."""
    ran = machine.call(*words)
    assert ran.returncode == 2 and what in ran.stderr and "Traceback" not in ran.stderr
