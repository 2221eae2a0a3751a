"""Tests of `checked_in_time`: a schema with patterns is validated in a separate process, with a
time limit."""

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
    result = checked_in_time(text, SLOW, longest)
    assert result is not None
    return result.problems


@pytest.mark.parametrize("text", ['"aaa"', '"b"', "3", "no", '"a\\ud800"', '```json\n"aaa"\n```'])
def test_both_validators_agree(text: str) -> None:
    """Validation in a separate process gives the same result as in this process, also with a lone
    surrogate."""
    assert checked_in_time(text, SLOW) == checked(text, SLOW)


def test_a_slow_pattern_is_stopped() -> None:
    """A pattern that exceeds the time limit is reported as a problem of the answer, and its process
    is ended."""
    start = time.monotonic()
    (problem,) = problems_of(f'"{"a" * 50}!"', 1.0)
    assert (
        problem
        == "the answer could not be validated: checking the patterns of the schema took longer than 1 s"
    )
    assert time.monotonic() - start < 5
    assert marked(os.environ["GEMINI_CLI_GEMINIDS_MARK"]) == []


def test_the_caller_gives_up() -> None:
    """If the caller gives up, the validation stops at once and returns None."""
    start = time.monotonic()
    assert checked_in_time(f'"{"a" * 50}!"', SLOW, given_up=lambda: time.monotonic() > start + 0.5) is None
    assert time.monotonic() - start < 3
    assert marked(os.environ["GEMINI_CLI_GEMINIDS_MARK"]) == []


def test_a_schema_without_patterns_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema without patterns is validated in this process: it works even without a Python to
    start."""
    monkeypatch.setattr("sys.executable", "/repo/none")
    assert checked_in_time("3", {"type": "integer"}) == Checked(True, 3)
    (problem,) = problems_of('"a"')
    assert "could not be validated" in problem


@pytest.mark.parametrize("flags", [["-I"], []])
def test_modules_are_not_imported_from_the_working_folder(flags: list[str], tmp_path: Path) -> None:
    """The validating process searches modules in the host's `sys.path`, but never in the working
    folder, where a foreign json.py may be."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    folders = [folder for folder in sys.path if folder.endswith("site-packages")]
    folders += [str(Path(geminids.__file__).parent.parent)]
    code = (
        f"import json, os, sys\nsys.path[:0] = {folders}; sys.path.insert(0, ''); os.chdir({str(tmp_path)!r})\n"
        "from geminids.run.schema.isolated_validation import checked_in_time\n"
        "print(checked_in_time('\"a\"', {'pattern': 'a'}).found)"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Not the Python of the virtual environment: it would find geminids in any case.
    command = [getattr(sys, "_base_executable", sys.executable), *flags, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path.parent)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_ctrl_c_does_not_reach_the_validating_process() -> None:
    """The validating process has its own process group, so that Ctrl-C in the terminal does not end
    it."""
    before = {child.pid for child in psutil.Process().children()}
    groups: dict[int, int] = {}

    def watch() -> None:
        deadline = time.monotonic() + 10
        # A child leaves our group a moment after the fork.
        while not any(group != os.getpgrp() for group in groups.values()) and time.monotonic() < deadline:
            for child in psutil.Process().children():
                if child.pid not in before:
                    with suppress(ProcessLookupError):
                        groups[child.pid] = os.getpgid(child.pid)
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    checked_in_time(f'"{"a" * 50}!"', SLOW, 1.0)
    watcher.join()
    assert groups and os.getpgrp() not in groups.values()


def test_unexpected_output_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the validating process prints something else, the answer is reported as not validated."""
    argv = [sys.executable, "-c", "print('Welcome')"]
    monkeypatch.setattr("geminids.run.schema.isolated_validation._argv", lambda: argv)
    (problem,) = problems_of('"a"')
    assert "could not be validated" in problem
