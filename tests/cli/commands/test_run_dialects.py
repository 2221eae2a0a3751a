"""`geminids run` in the formats of other systems. The live output equals that of `convert`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from geminids import Options
from geminids.dialects import record
from geminids.dialects.dialect import DIALECTS

_TOOL = (
    "tool = dict(tool_name='read_file', tool_id='t1', parameters={'file_path': 'a.txt'})\n"
    "end = dict(tool_id='t1', status='success', output='x')\n"
    "out(INIT + say('Let me ') + line('tool_use', **tool) + line('tool_result', **end) + say('see.') + DONE)"
)


def _argv(options: Options, *words: str) -> list[str]:
    fixed_flags = [
        "--gemini",
        str(options.gemini),
        "--home",
        options.home,
        "--cwd",
        options.cwd,
        "--grace",
        "1",
    ]
    return [sys.executable, "-m", "geminids", "run", *words, *fixed_flags]


def _run(argv: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)


def _convert(file: Path, *words: str) -> bytes:
    argv = [sys.executable, "-m", "geminids", "convert", str(file), *words]
    return subprocess.run(argv, capture_output=True, timeout=60, check=True).stdout


def _without_files(name: str, output: bytes) -> bytes:
    if name != "record":
        return output
    fields = ("output_path", "raw_output", "trajectory_path", "telemetry_log")
    live = record.decode(output)
    assert live.trajectory_path is not None and live.output_path is not None
    # The scripted CLI of this test reports no number of requests, so both records fail the check.
    return record.encode(replace(live, **dict.fromkeys(fields)))


@pytest.mark.parametrize(
    ("name", "flags"), [*((name, ()) for name in sorted(DIALECTS)), ("claude", ("--partial",))]
)
def test_live_output_equals_converted_events(
    fake_cli: Any, tmp_path: Path, name: str, flags: tuple[str, ...]
) -> None:
    """The live output equals the conversion of the saved events, byte for byte. stderr is empty.

    Only a live record has files, so these fields are compared as null.
    """
    file = tmp_path / "events.jsonl"
    done = _run(_argv(fake_cli(_TOOL), "hello", "-o", name, "--save-events", str(file), *flags))
    assert (done.returncode, done.stderr) == (0, b"")
    assert _without_files(name, done.stdout) == _convert(file, "--to", name, *flags)
    assert b"see." in done.stdout


def test_lines_are_printed_while_the_run_continues(fake_cli: Any) -> None:
    """The reader receives the first lines while the run continues."""
    options = fake_cli(
        "out(INIT + say('hi') + line('tool_use', tool_name='x', tool_id='t'))\nwhile True: time.sleep(1)"
    )
    argv = _argv(options, "hello", "-o", "agent-events", "--timeout", "4")
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b'"type":"init"' in process.stdout.readline()
        assert process.poll() is None
        assert b'"type":"done"' in process.stdout.read().splitlines()[-1]
        assert process.wait(20) == 124


def test_a_failed_run(fake_cli: Any) -> None:
    """A failed run is reported in the format, and its exit code is 1."""
    done = _run(_argv(fake_cli("out(INIT + say('half'))\nsys.exit(1)"), "hello", "-o", "untether"))
    assert done.returncode == 1
    assert b'"ok":false' in done.stdout.splitlines()[-1]


def test_a_strict_record(fake_cli: Any) -> None:
    """`--strict` exits with 3 if a field of the record is unknown, and names it.

    A failed run keeps its own exit code.
    """
    options = fake_cli("out(INIT + say('hi') + line('result', status='success'))")
    done = _run(_argv(options, "hello", "-o", "record", "--strict"))
    assert done.returncode == 3
    assert b"geminids: --strict: models_usage: no model with known tokens" in done.stderr
    failed = _run(_argv(fake_cli("sys.exit(1)"), "hello", "-o", "record", "--strict"))
    assert (failed.returncode, failed.stdout[:1]) == (1, b"{")


@pytest.mark.parametrize("words", [("-o", "events", "--partial"), ("--strict",), ("-o", "atif", "--strict")])
def test_an_option_of_another_format_is_refused(fake_cli: Any, words: tuple[str, ...]) -> None:
    """An option that the format does not have is refused before anything starts."""
    done = _run(_argv(fake_cli("out(INIT + DONE)"), "hello", *words))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"works only together with" in done.stderr


def test_a_closed_pipe_ends_the_run(fake_cli: Any) -> None:
    """If the reader closes the pipe, the run ends with exit code 141."""
    options = fake_cli("out(INIT)\nfor i in range(400): out(say('x' * 10_000)); time.sleep(0.01)\nout(DONE)")
    with subprocess.Popen(
        _argv(options, "hello", "-o", "agent-events"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 100)
        process.stdout.close()
        assert process.wait(30) == 141
