"""`geminids usage` as a command."""

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
    """A user's machine: a home that `fill` can fill with recorded sessions."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.home.mkdir()

    def fill(self) -> None:
        """Copy the recorded sessions of three releases into the home."""
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

    def output(self, *words: str, **env: str) -> str:
        done = self.call(*words, **env)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.output("--json", *words))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def full(machine: Machine) -> Machine:
    machine.fill()
    return machine


def test_empty_machine(machine: Machine) -> None:
    """Without sessions, `usage` prints one sentence, exits with 0 and creates no folder."""
    assert machine.output().startswith("No requests of Gemini CLI found on this machine")
    assert machine.json()["rows"] == [] and machine.json()["total"]["usd"] == 0
    assert machine.output("--csv").splitlines()[1:] == []
    assert not (machine.root / "geminids").exists()


def test_json(full: Machine) -> None:
    """The report has a row for each day and model, with tokens and list price.

    The rows add up to the total.
    """
    report = full.json()
    assert report["by"] == ["day", "model"]
    assert {row["model"] for row in report["rows"]} >= {"gemini-3.8-flash", "gemini-3-flash-preview"}
    for name in ("requests", "input", "cached", "output", "thinking", "total"):
        assert report["total"][name] == sum(row[name] for row in report["rows"]) > 0
    assert report["total"]["input"] == 100 * report["total"]["requests"]
    assert report["total"]["usd"] > 0 and report["basis"] == "exact"
    assert "router" in report["not_counted"]


def test_by(full: Machine) -> None:
    """`--by` groups by the given columns, in that order.

    Requests of a subagent count for its parent session.
    """
    rows = full.json("--by", "project,session")["rows"]
    assert list(rows[0])[:2] == ["project", "session"]
    agent_requests = [row["requests"] for row in rows if row["session"].startswith("0e8b0bd4")]
    assert len(agent_requests) == 1 and agent_requests[0] > 2
    assert {row["project"] for row in rows} == {"/repo/0.61.0", "/repo/0.41.2", "/repo/0.24.0"}


def test_project_and_days(full: Machine) -> None:
    """`--project` counts one folder only. `--since` and `--until` include both days."""
    all_requests = full.json()["total"]["requests"]
    project_requests = full.json("--project", "/repo/0.24.0")["total"]["requests"]
    assert 0 < project_requests < all_requests
    assert full.json("--since", "2026-11-16", "--until", "20261116")["total"]["requests"] > 0
    assert full.json("--until", "2020-01-01")["rows"] == []
    assert "found in /repo/0.24.0 until 2020-01-01" in full.output(
        "--project", "/repo/0.24.0", "--until", "2020-01-01"
    )


def test_csv(full: Machine) -> None:
    """`--csv` has the same numbers as `--json`."""
    rows = list(csv.DictReader(full.output("--csv", "--by", "model").splitlines()))
    report = full.json("--by", "model")["rows"]
    assert [(row["model"], int(row["total"])) for row in rows] == [
        (row["model"], row["total"]) for row in report
    ]
    assert [float(row["usd"]) for row in rows] == [row["usd"] for row in report]


def test_page(full: Machine) -> None:
    """`--html` writes a page with mode 0600. An existing file is replaced only with `--force`."""
    page = full.root / "usage.html"
    done = full.call("--html", str(page))
    assert (done.returncode, done.stdout) == (0, "") and "wrote" in done.stderr
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert page.read_text().startswith("<!doctype html>")
    assert full.call("--html", str(page)).returncode == 1
    assert full.call("--html", str(page), "--force").returncode == 0


def test_page_that_cannot_be_written(full: Machine) -> None:
    """A page that cannot be written gives one error, which names the path and `--html`."""
    done = full.call("--html", "/no/such/folder/page.html")
    assert done.returncode == 1 and "/no/such/folder/page.html" in done.stderr
    assert "--html" in done.stderr and "--out" not in done.stderr and "Traceback" not in done.stderr


def test_deleted_folder(full: Machine) -> None:
    """In a deleted folder, `usage` still prints the report; only a relative `--project` is an
    error.
    """
    program = (
        "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        "from geminids.cli import main; sys.argv[1:] = ['usage', '--json', *sys.argv[1:]]; main()"
    )
    environ = {**os.environ, "HOME": str(full.home), "GEMINIDS_HOME": str(full.root / "geminids")}
    for words, exit_code, expected in (
        ((), 0, '"rows"'),
        (("--project", "x"), 2, "the current folder no longer exists"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=full.root,
            env=environ,
            capture_output=True,
            text=True,
        )
        assert done.returncode == exit_code and expected in done.stdout + done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_terminal(full: Machine) -> None:
    """In a terminal the report has a bar chart; in a pipe it has only the table."""
    master, slave = pty.openpty()
    try:
        assert full.call(out=slave, COLUMNS="90", NO_COLOR="1").returncode == 0
        os.set_blocking(master, False)
        shown = os.read(master, 65536).decode()
    finally:
        os.close(master)
        os.close(slave)
    assert "█" in shown and "Cost by day" in shown and "TOTAL" in shown
    assert "█" not in full.output()


def test_own_prices(full: Machine) -> None:
    """`--prices` uses the prices of a file instead of the list prices."""
    prices = full.root / "prices.toml"
    prices.write_text('[[models]]\nmodel = "*"\ninput = 1000000\noutput = 0\n')
    assert full.json("--prices", str(prices))["total"]["usd"] == full.json()["total"]["input"]


def test_configured_prices(full: Machine) -> None:
    """`prices` of the user's configuration applies, as in a run.

    GEMINIDS_PRICES and `--prices` override it.
    """
    expensive, cheap = full.root / "dear.toml", full.root / "cheap.toml"
    expensive.write_text('[[models]]\nmodel = "*"\ninput = 1000000\noutput = 0\n')
    cheap.write_text('[[models]]\nmodel = "*"\ninput = 0\noutput = 0\n')
    config = full.root / "config.toml"
    config.write_text('[gemini]\nprices = "dear.toml"\n')
    report = json.loads(full.output("--json", GEMINIDS_CONFIG=str(config)))
    assert report["total"]["usd"] == report["total"]["input"] and report["prices"] == str(expensive)
    assert f"calculated with the prices in {expensive}" in full.output(GEMINIDS_CONFIG=str(config))
    for words, env in (((), {"GEMINIDS_PRICES": str(cheap)}), (("--prices", str(cheap)), {})):
        report = json.loads(full.output("--json", *words, GEMINIDS_CONFIG=str(config), **env))
        assert report["total"]["usd"] == 0 and report["prices"] == str(cheap)
    assert full.json()["prices"] is None


def test_prices_of_a_project_are_ignored(full: Machine) -> None:
    """`prices` in the configuration of a project is ignored, as in a run."""
    (full.root / "prices.toml").write_text('[[models]]\nmodel = "*"\ninput = 0\noutput = 0\n')
    (full.root / "geminids.toml").write_text('[gemini]\nprices = "prices.toml"\n')
    done = full.call("--json")
    assert done.returncode == 0 and json.loads(done.stdout)["total"]["usd"] > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("models = 3", "Expected `array`"),
        ('[[models]]\nmodel = "x"\ninput = -1\noutput = 0', "a price must be a number of 0 or more"),
        ("\0", "prices.toml: "),
    ],
)
def test_bad_prices(machine: Machine, text: str | None, message: str) -> None:
    """An invalid price file gives one error with the name of the file and an example of an entry."""
    prices = machine.root / "prices.toml"
    if text is not None:
        prices.write_text(text)
    done = machine.call("--prices", str(prices))
    assert done.returncode != 0 and message in done.stderr
    assert ("[[models]]" if text is not None else "TOML or JSON file") in done.stderr
    assert "Traceback" not in done.stderr and "prices.toml" in done.stderr


def test_the_request_log(full: Machine) -> None:
    """Requests that are only in the request log have their own columns.

    With `--home`, only those of its sessions are counted.
    """
    session = next(row["session"] for row in full.json("--by", "session")["rows"])
    before = full.json()
    names = ("other_requests", "other_tokens", "discarded_requests", "discarded_tokens", "unknown_requests")
    assert [before["total"][name] for name in names] == [0] * 5 and before["basis"] == "exact"
    assert "OTHER" not in full.output() and "Not included" in full.output()
    places = Places(full.root / "geminids")
    for number, (owner, project) in enumerate([(session, "/repo/here"), ("gone", "/repo/gone")]):
        log = RequestLog(f"r{number}", lambda where=(owner, project): where, places=places)  # type: ignore[misc]
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
    words = " ".join(full.output().split())
    assert "OTHER DISCARDED" in words
    assert "loop checks). The sums above include them: 4 requests, 200 tokens" in words
    assert "did not use. The sums above include them: 2 requests, 200 tokens" in words
    assert "2 requests ended before the API reported the tokens" in words
    assert full.json("--home", "user")["total"]["other_requests"] == 2
    assert full.json("--project", "/repo/gone")["total"]["discarded_requests"] == 1
    assert full.json("--until", "2026-01-01")["total"]["other_requests"] == 0
    rows = list(csv.DictReader(full.output("--csv", "--by", "project").splitlines()))
    assert {row["project"]: row["discarded_requests"] for row in rows}["/repo/gone"] == "1"


def test_the_price_library_is_not_loaded_again(full: Machine) -> None:
    """The second report does not import the price library, because the first one stored its result."""
    program = "import sys; from geminids.cli import main; sys.argv[1:] = ['usage', '--json']\n"
    program += "try: main()\nfinally: print('genai_prices' in sys.modules, file=sys.stderr)"
    for loaded in ("True", "False"):
        environ = {**os.environ, "HOME": str(full.home), "GEMINIDS_HOME": str(full.root / "geminids")}
        done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True)
        assert done.stderr.split() == [loaded] and json.loads(done.stdout)["total"]["usd"] > 0


def test_unknown_price(full: Machine) -> None:
    """A model without a known price is named, and the total cost does not include it."""
    file = next((full.home / ".gemini/tmp/app-0.41.2/chats").glob("*-4ea6ce31.jsonl"))
    file.write_text(file.read_text().replace("gemini-3-flash-preview", "unpriced-model"))
    report = full.json("--by", "model")
    assert report["unpriced_models"] == ["unpriced-model"]
    assert [row["usd"] for row in report["rows"] if row["model"] == "unpriced-model"] == [None]
    assert report["total"]["usd"] > 0 and report["total"]["usd_complete"] is False
    assert "≥$" in full.output()


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_invalid_options(machine: Machine, words: tuple[str, ...], message: str) -> None:
    """An invalid option exits with 2 and one clear error."""
    done = machine.call(*words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
