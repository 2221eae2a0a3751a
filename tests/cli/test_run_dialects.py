"""`geminids run` in other systems' formats: live, and the same as `convert` gives afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geminids import Options
from geminids.dialects.dialect import DIALECTS

_TOOL = (
    "tool = dict(tool_name='read_file', tool_id='t1', parameters={'file_path': 'a.txt'})\n"
    "end = dict(tool_id='t1', status='success', output='x')\n"
    "out(INIT + say('Let me ') + line('tool_use', **tool) + line('tool_result', **end) + say('see.') + DONE)"
)


def _argv(options: Options, *words: str) -> list[str]:
    given = ["--gemini", str(options.gemini), "--home", options.home, "--cwd", options.cwd, "--grace", "1"]
    return [sys.executable, "-m", "geminids", "run", *words, *given]


def _run(argv: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)


def _converted(file: Path, *words: str) -> bytes:
    argv = [sys.executable, "-m", "geminids", "convert", str(file), *words]
    return subprocess.run(argv, capture_output=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(
    ("name", "more"), [*((name, ()) for name in sorted(DIALECTS)), ("claude", ("--partial",))]
)
def test_live_is_what_convert_gives(stand_in: Any, tmp_path: Path, name: str, more: tuple[str, ...]) -> None:
    """stdout has the format and nothing else, to the byte what the saved events become."""
    file = tmp_path / "events.jsonl"
    done = _run(_argv(stand_in(_TOOL), "hello", "-o", name, "--save-events", str(file), *more))
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == _converted(file, "--to", name, *more)
    assert b"see." in done.stdout


def test_lines_come_as_they_are_said(stand_in: Any) -> None:
    """Whoever reads has the beginning while the run goes on."""
    options = stand_in(
        "out(INIT + say('hi') + line('tool_use', tool_name='x', tool_id='t'))\nwhile True: time.sleep(1)"
    )
    argv = _argv(options, "hello", "-o", "agent-events", "--timeout", "4")
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b'"type":"init"' in process.stdout.readline()
        assert process.poll() is None
        assert b'"type":"done"' in process.stdout.read().splitlines()[-1]
        assert process.wait(20) == 124


def test_a_failed_run_has_its_exit_code(stand_in: Any) -> None:
    """A dialect says how it ended, and the exit code says it too."""
    done = _run(_argv(stand_in("out(INIT + say('half'))\nsys.exit(1)"), "hello", "-o", "untether"))
    assert done.returncode == 1
    assert b'"ok":false' in done.stdout.splitlines()[-1]


def test_a_strict_record(stand_in: Any) -> None:
    """--strict is exit 3 where a field is not known, and names it; a run that failed keeps its own exit code."""
    options = stand_in("out(INIT + say('hi') + line('result', status='success'))")
    done = _run(_argv(options, "hello", "-o", "record", "--strict"))
    assert done.returncode == 3
    assert b"geminids: --strict: models_usage: no model with known tokens" in done.stderr
    failed = _run(_argv(stand_in("sys.exit(1)"), "hello", "-o", "record", "--strict"))
    assert (failed.returncode, failed.stdout[:1]) == (1, b"{")


@pytest.mark.parametrize("words", [("-o", "events", "--partial"), ("--strict",), ("-o", "atif", "--strict")])
def test_a_manner_that_the_format_has_not(stand_in: Any, words: tuple[str, ...]) -> None:
    """It is refused before anything is started."""
    done = _run(_argv(stand_in("out(INIT + DONE)"), "hello", *words))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"works only with" in done.stderr


def test_a_reader_that_goes_away(stand_in: Any) -> None:
    """The run is ended in order; exit 141, as for any other format."""
    options = stand_in("out(INIT)\nfor i in range(400): out(say('x' * 10_000)); time.sleep(0.01)\nout(DONE)")
    with subprocess.Popen(
        _argv(options, "hello", "-o", "agent-events"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 100)
        process.stdout.close()
        assert process.wait(30) == 141
