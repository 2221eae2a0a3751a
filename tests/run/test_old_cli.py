"""A Gemini CLI before 0.54 is refused by every way to start it, before anything is started."""

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

# A program that says which release it is, and leaves a file if it is started for anything else.
_PROGRAM = """\
#!{python} -IS
import sys
if "--version" in sys.argv:
    print({version!r})
    sys.exit()
open({mark!r}, "w").close()
"""
Program = Callable[[str], Options]


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "started"


@pytest.fixture
def program(tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Options for a CLI that calls itself this release."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def make(version: str) -> Options:
        script = tmp_path / "gemini"
        script.write_text(_PROGRAM.format(python=sys.executable, version=version, mark=str(mark)))
        script.chmod(0o755)
        env = {"GEMINI_API_KEY": "a-key-of-nobody"}
        return Options(gemini=str(script), home="isolated", cwd=str(tmp_path), env=env)

    return make


def _assert_refused(failure: Any, version: str = "0.53.2") -> None:
    """One sentence that names the release and the remedy."""
    assert failure.kind == "cli_unsupported"
    assert f"Gemini CLI {version} is too old" in failure.message
    assert "`geminids install`" in failure.message
    assert "\n" not in failure.message
    assert "geminids install" in failure.hint
    assert not failure.retryable


@pytest.mark.parametrize("fields", [{}, {"resume": "latest"}, {"retries": 2}, {"gateway": "on"}])
def test_a_run(program: Program, mark: Path, fields: dict[str, Any]) -> None:
    """`ask` and `stream`: the run ends with the failure, and the CLI is not started."""
    options = program("0.53.2")
    events: list[Any] = list(geminids.stream_sync("hello", options, **fields))
    assert not [event for event in events if isinstance(event, Started)]
    _assert_refused(events[-1].failure)
    _assert_refused(geminids.ask_sync("hello", options, **fields).failure)
    assert not mark.exists()


def test_a_run_that_asks(program: Program, mark: Path) -> None:
    """With `on_permission` too; no notice promises that a headless run can do it."""

    async def main() -> list[Any]:
        async with geminids.open_run("hello", program("0.53.2"), on_permission=lambda _: "deny") as run:
            return [event async for event in run]

    events = anyio.run(main)
    assert [type(event) for event in events] == [Finished]
    _assert_refused(events[0].failure)
    assert not mark.exists()


def test_a_chat(program: Program, mark: Path) -> None:
    """A chat of a pool ends its first turn with the same failure."""

    async def main() -> list[Any]:
        async with geminids.Pool(program("0.53.2")) as pool, pool.chat() as chat:
            return [event async for event in chat.send("hello")]

    events = anyio.run(main)
    assert [type(event) for event in events] == [Finished]
    _assert_refused(events[0].failure)
    assert not mark.exists()


def _geminids(options: Options, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "geminids", *words, f"--gemini={options.gemini}", f"--cwd={options.cwd}"]
    env = {**os.environ, **options.env}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "hello"),
        ("run", "hello", "--output=events"),
        ("run", "hello", "--dry-run"),
        ("chat", "hello"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_the_command_line(program: Program, mark: Path, words: tuple[str, ...]) -> None:
    """Each command fails, says why, and names `geminids install`."""
    done = _geminids(program("0.53.2"), *words)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "Gemini CLI 0.53.2 is too old" in said
    assert "geminids install" in said
    assert not mark.exists()


def test_a_warm_run(program: Program, mark: Path) -> None:
    """The process that would keep the CLI ready refuses it too."""
    options = program("0.53.2")
    try:
        done = _geminids(options, "run", "hello", "--warm")
    finally:
        stop = [sys.executable, "-m", "geminids", "warm", "stop"]
        subprocess.run(stop, check=True, capture_output=True, timeout=60)
    assert done.returncode == 1
    assert "Gemini CLI 0.53.2 is too old" in done.stdout + done.stderr
    assert not mark.exists()


def test_the_probes(program: Program, mark: Path) -> None:
    """`is_available` says no, with the reason."""
    options = program("0.53.2")
    ok, reason = is_available(options.gemini)
    assert not ok
    assert "0.53.2 is too old" in reason
    assert not mark.exists()


@pytest.mark.parametrize("version", ["0.54.0", "0.54.0-preview.1", "0.99.0", "2.0.0", "no version"])
def test_others_are_started(program: Program, mark: Path, version: str) -> None:
    """The oldest supported release, a newer one than was ever tested, and one whose version nobody knows."""
    result = geminids.ask_sync("hello", program(version))
    assert mark.exists()
    assert result.failure is not None and result.failure.kind != "cli_unsupported"


def test_a_supported_release_is_taken_in_its_place(program: Program, mark: Path, tmp_path: Path) -> None:
    """A default search that meets an old one first goes on: the managed release is planned."""
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
    assert not mark.exists()
