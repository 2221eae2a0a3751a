"""`geminids chat`: its options, and what is told before anything is started."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from geminids import Options

chat = import_module("geminids.cli.commands.chat")


def _chat(*flags: str, **how: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "geminids", "chat", *flags]
    return subprocess.run(argv, input="hello\n", capture_output=True, text=True, timeout=60, **how)


def test_help_has_the_flags_that_make_sense() -> None:
    """The flags of a run, without those of one process or one prompt."""
    help_text = _chat("--help").stdout
    of_chats = (
        "--model",
        "--approval",
        "--deny",
        "--resume",
        "--continue",
        "--json",
        "--retries",
        "--fallback",
    )
    of_runs = ("--session-id", "--telemetry", "--dry-run", "--save-events", "--schema")
    assert [flag for flag in of_chats if flag not in help_text] == []
    assert [flag for flag in of_runs if flag in help_text] == []


def test_what_is_configured_for_runs_is_no_hindrance(
    stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chat ignores `schema` in a configuration, and keeps `retries` and `fallback_models`."""
    monkeypatch.setenv("GEMINI_CLI_PATH", stand_in("").gemini)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "work")
    options = Options(retries=3, schema="true", schema_tries=1, fallback_models=("flash",), model="pro")
    expected = Options(retries=3, fallback_models=("flash",), model="pro")
    assert chat._check_options(options, asks=False) == (expected, None)


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (("--continue", "--resume", "latest"), 2, "cannot be used together"),
        (("--approval", "wild"), 2, "approval: is 'wild'"),
        (("--gemini", "/nonesuch/gemini"), 127, "cli_missing"),
    ],
)
def test_what_cannot_work_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], code: int, told: str
) -> None:
    """One clear message and an exit code, before a prompt is read; never a traceback."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    done = _chat(*flags, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
