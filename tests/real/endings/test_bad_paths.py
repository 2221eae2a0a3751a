"""`geminids run` refuses bad paths with one clear message and does not start the CLI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with good and bad paths, and a fake CLI that writes the file `started` when it
    runs."""
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    cli = tmp_path / "gemini"
    result = '{"type":"result","status":"success","stats":{}}'
    version = 'case "$*" in *--version*) echo 0.61.0; exit;; esac'
    cli.write_text(f"#!/bin/sh\n{version}\ncat > '{tmp_path}/started'\necho '{result}'\n")
    cli.chmod(0o755)
    (tmp_path / "a file").write_text("x")
    (tmp_path / "not utf-8").write_bytes(b"\xff\xfe\x00 \xd8")
    with (tmp_path / "50 MB").open("wb") as big:
        big.truncate(50 * 1024 * 1024)
    (tmp_path / "broken.env").write_text("A=1\nsecret-words-in-a-broken-line\n")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


def _run(place: Path, *flags: str, cwd: str = "work", **fields: Any) -> subprocess.CompletedProcess[str]:
    arguments = [
        f"--cwd={place / cwd}",
        f"--gemini={place / 'gemini'}",
        "--home=isolated",
        "--no-config",
        *flags,
    ]
    env = {**os.environ, "HOME": str(place / "home"), "GEMINIDS_HOME": str(place / "geminids")}
    argv = [sys.executable, "-m", "geminids", "run", "hello", *arguments]
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=env,
        cwd=place,
        timeout=60,
        **fields,
    )


def _assert_refused(place: Path, done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode in (1, 2), done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 6, done.stderr
    assert [word for word in words if word not in done.stderr] == [], done.stderr
    assert not (place / "started").exists()


def test_valid_paths_start_the_cli(place: Path) -> None:
    """With valid paths the CLI starts, and `--make-cwd` creates the missing folder first."""
    assert not (place / "new/er").exists()
    done = _run(place, "--make-cwd", f"--instructions={place / 'a file'}", cwd="new/er")
    assert done.returncode == 0, done.stderr
    assert (place / "new/er").is_dir()
    assert (place / "started").read_text().endswith("hello")


@pytest.mark.parametrize(
    ("cwd", "flags", "words"),
    [
        ("a file", (), ("a file", "not a folder")),
        pytest.param("not there", (), ("not there", "does not exist"), marks=pytest.mark.deep),
        pytest.param("a file/below", ("--make-cwd",), ("a file/below",), marks=pytest.mark.deep),
        pytest.param("fifo", (), ("fifo", "not a folder"), marks=pytest.mark.deep),
    ],
)
def test_a_bad_cwd_is_refused(place: Path, cwd: str, flags: tuple[str, ...], words: tuple[str, ...]) -> None:
    """A `cwd` that is a file, does not exist or cannot be created is refused."""
    _assert_refused(place, _run(place, *flags, cwd=cwd), "cwd", *words)


@pytest.mark.parametrize(
    ("flag", "path", "words"),
    [
        ("--instructions", "not utf-8", ("--instructions: ", "UTF-8")),
        *(
            pytest.param(flag, path, words, marks=pytest.mark.deep)
            for flag, path, words in [
                ("--instructions", "not there", ("--instructions: ", "does not exist")),
                ("--instructions", "work", ("--instructions: ", "is a folder")),
                ("--instructions", "fifo", ("--instructions: ", "not a regular file")),
                ("--instructions", "50 MB", ("--instructions: ", "bytes")),
                ("--file", "not there", ("--file: ", "does not exist")),
                ("--image", "../up/no such 'picture\"\n.png", ("--image: ", "does not exist")),
                ("--image", "a file", ("--image: ",)),
                ("--image", "fifo", ("--image: ", "not a regular file")),
                ("--video", "work", ("--video: ", "is a folder")),
                ("--include-dir", "not there", ("--include-dir: ", "does not exist")),
                ("--include-dir", "a file", ("--include-dir: ", "not a folder")),
                ("--env-file", "not there", ("--env-file: ", "does not exist")),
                ("--env-file", "work", ("--env-file: ", "is a folder")),
                ("--env-file", "broken.env", ("--env-file: ", "line 2")),
                ("--env-file", "not utf-8", ("--env-file: ",)),
                ("--system-prompt", "not there", ("--system-prompt: ", "does not exist")),
                ("--skill", "not there", ("--skill: ", "does not exist")),
            ]
        ),
    ],
)
def test_a_bad_file_is_refused(place: Path, flag: str, path: str, words: tuple[str, ...]) -> None:
    """Instructions, media, folders, env files and skills that are missing, of the wrong kind, not
    text or too big are refused. The message names the flag and does not quote their content."""
    done = _run(place, f"{flag}={place / path}")
    _assert_refused(place, done, *words)
    assert "secret-words" not in done.stderr


@pytest.mark.deep
@pytest.mark.parametrize(
    "name", ["with blank.txt", 'it\'s "quoted".txt', "two\nlines.txt", "--flag.txt", "@at.txt"]
)
def test_unusual_file_names_are_accepted(place: Path, name: str) -> None:
    """A file with an unusual name is accepted, and the run starts."""
    (place / name).write_text("fine")
    done = _run(place, f"--file={place / 'work' / '..' / name}")
    assert done.returncode == 0, done.stderr
    assert (place / "started").exists()


@pytest.mark.deep
def test_an_unreadable_cwd_is_refused(place: Path) -> None:
    """A `cwd` that the user may not read is refused with one clear message."""
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (place / "work").chmod(0)
    try:
        _assert_refused(place, _run(place), "cwd")
    finally:
        (place / "work").chmod(0o755)


@pytest.mark.deep
def test_an_empty_mcp_server_is_refused(place: Path) -> None:
    """An MCP server with neither a command nor a URL raises an error that says so, and the CLI is
    not started."""
    import geminids
    from geminids import McpServer, OptionsError

    with pytest.raises(OptionsError, match="needs either a command or a url"):
        geminids.ask_sync(
            "hi", cwd=str(place / "work"), gemini=str(place / "gemini"), mcp_servers={"x": McpServer()}
        )
    assert not (place / "started").exists()


@pytest.mark.deep
def test_all_problems_are_reported_together(place: Path) -> None:
    """Three bad paths are reported together in one message."""
    done = _run(place, f"--image={place / 'no1'}", f"--include-dir={place / 'no2'}", cwd="no3")
    _assert_refused(place, done, "no1", "no2", "no3")
