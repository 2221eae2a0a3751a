"""`geminids chat`: its options, and what is told before anything is started."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids import Options

chat = import_module("geminids.cli.commands.chat")


def _chat(*flags: str, **how: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "geminids", "chat", *flags]
    return subprocess.run(argv, input="hello\n", capture_output=True, text=True, timeout=60, **how)


def test_help_has_the_flags_that_make_sense() -> None:
    """Those of a run, without those of a process of its own."""
    told = _chat("--help").stdout
    assert all(
        flag in told
        for flag in (
            "--model",
            "--approval",
            "--deny",
            "--resume",
            "--continue",
            "--json",
            "--retries",
            "--fallback",
        )
    )
    runs = (
        "--session-id",
        "--telemetry",
        "--dry-run",
        "--save-events",
        "--schema",
    )
    assert not any(flag in told for flag in runs)


def test_what_is_configured_for_runs_is_no_hindrance(
    stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options of a run in a configuration file do not keep anybody from a chat."""
    monkeypatch.setenv("GEMINI_CLI_PATH", stand_in("").gemini)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "work")
    kept = Options(retries=3, fallback_models=("flash",), model="pro")
    options = msgspec.structs.replace(kept, schema="true", schema_tries=1)
    assert chat._checked(options, asks=False) == (kept, None)


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (("--continue", "--resume", "latest"), 2, "cannot both be given"),
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
