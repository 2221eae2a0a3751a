"""A schema with patterns is checked aside, and in time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import geminids
from geminids.process.tree import marked
from geminids.run.schema.answer_json import Checked, checked
from geminids.run.schema.isolated_validation import checked_in_time

SLOW = {"type": "string", "pattern": "^(a+)+$"}


def problems_of(text: str, longest: float = 20.0) -> tuple[str, ...]:
    found = checked_in_time(text, SLOW, longest)
    assert found is not None
    return found.problems


@pytest.mark.parametrize("text", ['"aaa"', '"b"', "3", "no", '"a\\ud800"', '```json\n"aaa"\n```'])
def test_the_same_is_found(text: str) -> None:
    """Whoever looks, also where half a character is in it."""
    assert checked_in_time(text, SLOW) == checked(text, SLOW)


def test_a_pattern_that_takes_for_ever() -> None:
    """Is given up, as a problem of the answer, and nothing goes on."""
    began = time.monotonic()
    (problem,) = problems_of(f'"{"a" * 50}!"', 1.0)
    assert problem == "the answer could not be validated: its patterns took longer than 1 s"
    assert time.monotonic() - began < 5
    assert marked(os.environ["GEMINI_CLI_GEMINIDS_MARK"]) == []


def test_nobody_waits_any_more() -> None:
    """It is ended at once, and nothing is said of the answer."""
    began = time.monotonic()
    assert checked_in_time(f'"{"a" * 50}!"', SLOW, given_up=lambda: time.monotonic() > began + 0.5) is None
    assert time.monotonic() - began < 3
    assert marked(os.environ["GEMINI_CLI_GEMINIDS_MARK"]) == []


def test_others_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most schemas have no pattern."""
    monkeypatch.setattr("sys.executable", "/repo/none")
    assert checked_in_time("3", {"type": "integer"}) == Checked(True, 3)
    (problem,) = problems_of('"a"')
    assert "could not be validated" in problem


@pytest.mark.parametrize("flags", [["-I"], []])
def test_a_host_that_has_found_us_by_itself(flags: list[str], tmp_path: Path) -> None:
    """It is looked for where the host has looked; never where it stands, where somebody may have put a json.py."""
    (tmp_path / "json.py").write_text("raise SystemExit('taken')")
    places = [place for place in sys.path if place.endswith("site-packages")]
    places += [str(Path(geminids.__file__).parent.parent)]
    code = (
        f"import json, os, sys\nsys.path[:0] = {places}; sys.path.insert(0, ''); os.chdir({str(tmp_path)!r})\n"
        "from geminids.run.schema.isolated_validation import checked_in_time\n"
        "print(checked_in_time('\"a\"', {'pattern': 'a'}).found)"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Not the virtual environment's own, which finds us anyhow.
    command = [getattr(sys, "_base_executable", sys.executable), *flags, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path.parent)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_key_that_is_meant_for_the_host() -> None:
    """Ctrl-C in a terminal goes to all of its group; the check goes on."""
    before = {child.pid for child in psutil.Process().children()}
    groups: dict[int, int] = {}

    def look() -> None:
        end = time.monotonic() + 10
        # A child leaves our group a moment after the fork.
        while not any(group != os.getpgrp() for group in groups.values()) and time.monotonic() < end:
            for child in psutil.Process().children():
                if child.pid not in before:
                    with suppress(ProcessLookupError):
                        groups[child.pid] = os.getpgid(child.pid)
            time.sleep(0.01)

    looking = threading.Thread(target=look)
    looking.start()
    checked_in_time(f'"{"a" * 50}!"', SLOW, 1.0)
    looking.join()
    assert groups and os.getpgrp() not in groups.values()


def test_what_is_not_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that says something of its own on stdout is no mistake of ours, and no answer."""
    argv = [sys.executable, "-c", "print('Welcome')"]
    monkeypatch.setattr("geminids.run.schema.isolated_validation._argv", lambda: argv)
    (problem,) = problems_of('"a"')
    assert "could not be validated" in problem
