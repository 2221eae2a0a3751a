"""`geminids chat`: its flags, and the errors that it reports before anything starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geminids import Options
from geminids.cli.chat.start import CheckedChat, check_options
from geminids.cli.commands.chat import split_options


def _chat(*flags: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "geminids", "chat", *flags]
    return subprocess.run(argv, input="hello\n", capture_output=True, text=True, timeout=60, **kwargs)


def test_help_lists_the_flags_of_a_chat() -> None:
    """`chat --help` lists the flags of a run, without those that belong to one process or one
    prompt.
    """
    help_text = _chat("--help").stdout
    chat_flags = (
        "--model",
        "--approval",
        "--deny",
        "--resume",
        "--continue",
        "--json",
        "--retries",
        "--fallback",
    )
    run_flags = ("--session-id", "--telemetry", "--dry-run", "--save-events", "--schema")
    assert [flag for flag in chat_flags if flag not in help_text] == []
    assert [flag for flag in run_flags if flag in help_text] == []


def test_help_describes_the_default_of_a_chat() -> None:
    """`chat --help` says that a chat asks by default, as its first screen does; `run` denies."""
    help_text = " ".join(_chat("--help").stdout.split())
    assert "By default, the agent may only read; it asks before anything else" in help_text
    assert "What the agent does without asking you: default only reads" in help_text
    assert "[default: default]" in help_text


def test_options_for_single_runs_are_ignored(
    fake_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chat ignores `schema` and `schema_tries`; it keeps `retries` and `fallback_models`."""
    monkeypatch.setenv("GEMINI_CLI_PATH", fake_cli("").gemini)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "work")
    options = Options(retries=3, schema="true", schema_tries=1, fallback_models=("flash",), model="pro")
    expected = Options(retries=3, fallback_models=("flash",), model="pro")
    assert check_options(split_options(options)[0], asks=False) == CheckedChat(expected, None, "pro")


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--continue", "--resume", "latest"), 2, "cannot be used together"),
        (("--approval", "wild"), 2, "approval: is 'wild'"),
        (("--gemini", "/nonesuch/gemini"), 127, "cli_missing"),
    ],
)
def test_bad_flags_and_a_missing_cli_are_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], code: int, message: str
) -> None:
    """A bad flag or a missing CLI gives one message and an exit code, without output or traceback."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    done = _chat(*flags, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
