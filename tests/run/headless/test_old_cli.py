"""A Gemini CLI before 0.54 is refused before it starts, by every interface that would start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from geminids import Finished, Options, Started
from geminids.gemini import is_available

# Prints its version, and creates a file if it is started for anything else.
_PROGRAM = """\
#!{python} -IS
import sys
if "--version" in sys.argv:
    print({version!r})
    sys.exit()
open({start_file!r}, "w").close()
"""
Program = Callable[[str], Options]


@pytest.fixture
def start_file(tmp_path: Path) -> Path:
    return tmp_path / "started"


@pytest.fixture
def program(tmp_path: Path, start_file: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A function that creates a fake CLI of the given version, and returns options for it."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def make(version: str) -> Options:
        script = tmp_path / "gemini"
        script.write_text(_PROGRAM.format(python=sys.executable, version=version, start_file=str(start_file)))
        script.chmod(0o755)
        env = {"GEMINI_API_KEY": "a-key-of-nobody"}
        return Options(gemini=str(script), home="isolated", cwd=str(tmp_path), env=env)

    return make


def _assert_refused(failure: Any, version: str = "0.53.2") -> None:
    """Check that the message is one line that names the version and `geminids install`."""
    assert failure.kind == "cli_unsupported"
    assert f"Gemini CLI {version} is too old" in failure.message
    assert "`geminids install`" in failure.message
    assert "\n" not in failure.message
    assert "geminids install" in failure.hint
    assert not failure.retryable


@pytest.mark.parametrize("fields", [{}, {"resume": "latest"}, {"retries": 2}, {"gateway": "on"}])
def test_a_headless_run_is_refused(program: Program, start_file: Path, fields: dict[str, Any]) -> None:
    """`stream_sync` and `ask_sync` end with the failure, and the CLI is not started."""
    options = program("0.53.2")
    events: list[Any] = list(geminids.stream_sync("hello", options, **fields))
    assert not [event for event in events if isinstance(event, Started)]
    _assert_refused(events[-1].failure)
    _assert_refused(geminids.ask_sync("hello", options, **fields).failure)
    assert not start_file.exists()


def test_a_run_with_a_permission_callback_is_refused(program: Program, start_file: Path) -> None:
    """A run with `on_permission` ends with the same failure, and no notice suggests a headless
    run."""

    async def main() -> list[Any]:
        async with geminids.open_run("hello", program("0.53.2"), on_permission=lambda _: "deny") as run:
            return [event async for event in run]

    events = anyio.run(main)
    assert [type(event) for event in events] == [Finished]
    _assert_refused(events[0].failure)
    assert not start_file.exists()


def test_a_chat_is_refused(program: Program, start_file: Path) -> None:
    """A chat of a pool ends its first turn with the same failure."""

    async def main() -> list[Any]:
        async with geminids.Pool(program("0.53.2")) as pool, pool.chat() as chat:
            return [event async for event in chat.send("hello")]

    events = anyio.run(main)
    assert [type(event) for event in events] == [Finished]
    _assert_refused(events[0].failure)
    assert not start_file.exists()


def _geminids(options: Options, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [
        sys.executable,
        "-m",
        "geminids",
        *arguments,
        f"--gemini={options.gemini}",
        f"--cwd={options.cwd}",
    ]
    env = {**os.environ, **options.env}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "hello"),
        ("run", "hello", "--output=events"),
        ("run", "hello", "--dry-run"),
        ("chat", "hello"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_each_command_is_refused(program: Program, start_file: Path, arguments: tuple[str, ...]) -> None:
    """Each command fails, gives the reason, and names `geminids install`."""
    done = _geminids(program("0.53.2"), *arguments)
    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert "Gemini CLI 0.53.2 is too old" in output
    assert "geminids install" in output
    assert not start_file.exists()


def test_a_warm_run_is_refused(program: Program, start_file: Path) -> None:
    """`geminids run --warm` refuses an old CLI too."""
    options = program("0.53.2")
    try:
        done = _geminids(options, "run", "hello", "--warm")
    finally:
        stop = [sys.executable, "-m", "geminids", "warm", "stop"]
        subprocess.run(stop, check=True, capture_output=True, timeout=60)
    assert done.returncode == 1
    assert "Gemini CLI 0.53.2 is too old" in done.stdout + done.stderr
    assert not start_file.exists()


def test_is_available_gives_the_reason(program: Program, start_file: Path) -> None:
    """`is_available` returns False with the reason."""
    options = program("0.53.2")
    ok, reason = is_available(options.gemini)
    assert not ok
    assert "0.53.2 is too old" in reason
    assert not start_file.exists()


@pytest.mark.parametrize("version", ["0.54.0", "0.54.0-preview.1", "0.99.0", "2.0.0", "no version"])
def test_supported_and_unknown_versions_are_started(program: Program, start_file: Path, version: str) -> None:
    """The oldest supported release, a release newer than any tested one, and one with an unknown
    version are started."""
    result = geminids.ask_sync("hello", program(version))
    assert start_file.exists()
    assert result.failure is not None and result.failure.kind != "cli_unsupported"


def test_a_managed_release_replaces_an_old_cli(program: Program, start_file: Path, tmp_path: Path) -> None:
    """If the CLI on PATH is too old, the search continues and selects the managed release."""
    options = program("0.53.2")
    folder = tmp_path / "geminids" / "gemini" / "0.61.0" / "node_modules" / "@google" / "gemini-cli"
    folder.mkdir(parents=True)
    manifest = {"name": "@google/gemini-cli", "version": "0.61.0", "bin": {"gemini": "gemini.js"}}
    (folder / "package.json").write_text(json.dumps(manifest))
    (folder / "gemini.js").write_text("")
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    argv = [sys.executable, "-m", "geminids", "run", "hello", "--dry-run", "--output=events"]
    env = {**os.environ, **options.env, "PATH": path}
    done = subprocess.run(argv, env=env, cwd=options.cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["release"] == "0.61.0"
    assert not start_file.exists()
