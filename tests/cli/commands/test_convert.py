"""`geminids convert` as a command: every kind of input, every format, and invalid files."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from geminids.dialects import record
from geminids.dialects.dialect import DIALECTS, encode_run
from geminids.events.model import encode_event
from random_events import RECORDINGS, recorded
from recordings import recorded as recorded_session

_TOOLS = RECORDINGS / "tools.jsonl"
_STREAM = (
    b'{"type":"init","timestamp":"2026-11-16T03:33:20.000Z","session_id":"s1","model":"auto"}\n'
    b'{"type":"message","timestamp":"2026-11-16T03:33:20.100Z","role":"assistant","content":"hi","delta":true}\n'
    b'{"type":"result","timestamp":"2026-11-16T03:33:20.200Z","status":"success"}\n'
)


def _encoded(name: str) -> bytes:
    """A recording, encoded by this version: fields that are newer than the recording have their
    defaults.
    """
    return b"".join(encode_event(event) + b"\n" for event in recorded(name))


def _convert(*words: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "geminids", "convert", *map(str, words)]
    return subprocess.run(argv, input=stdin, capture_output=True, timeout=60)


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_events_to_each_dialect(name: str) -> None:
    """stdout has exactly the bytes of the dialect's encoder, and stderr is empty."""
    done = _convert(_TOOLS, "--to", name)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"".join(encode_run(name, recorded("tools")))


def test_events_from_stdin_stay_the_same() -> None:
    """`-` reads stdin, and events that are converted to events stay the same."""
    stdin = _encoded("tools")
    assert _convert("-", "--to", "events", stdin=stdin).stdout == stdin


def test_partial_is_for_claude_only() -> None:
    """`--partial` adds stream events to the claude format. Other formats refuse it."""
    plain, partial = (_convert(_TOOLS, "--to", "claude", *more).stdout for more in ((), ("--partial",)))
    assert b"stream_event" in partial
    assert b"stream_event" not in plain
    refused = _convert(_TOOLS, "--to", "atif", "--partial")
    assert refused.returncode == 2
    assert b"--partial works only together with `--to claude`" in refused.stderr


def test_stream_json_of_the_cli(tmp_path: Path) -> None:
    """The CLI's stream-json converts to events.

    Converting it directly or through events gives the same output.
    """
    file = tmp_path / "stream.jsonl"
    file.write_bytes(b"Loaded cached credentials.\n" + _STREAM)
    events = _convert(file, "--to", "events").stdout
    assert b'"outcome":"success"' in events.splitlines()[-1]
    assert _convert(file, "--to", "untether").stdout == _convert("-", "--to", "untether", stdin=events).stdout


@pytest.mark.parametrize("version", ["0.24.0", "0.61.0"])
@pytest.mark.parametrize("form", ["atif", "claude", "claude-jsonl", "html", "json", "markdown"])
def test_a_session_file(version: str, form: str) -> None:
    """A session file converts to every export format, also from a pipe."""
    file, _ = recorded_session(version, "What is x?")
    done, piped = _convert(file, "--to", form), _convert("-", "--to", form, stdin=file.read_bytes())
    assert (done.returncode, done.stderr, piped.returncode) == (0, b"", 0)
    assert b"What is x?" in done.stdout
    if form not in (
        "claude-jsonl",
        "html",
        "markdown",
        "json",
    ):  # those contain the path of the file, or new ids
        assert piped.stdout == done.stdout


def test_impossible_conversions_are_refused() -> None:
    """A session file and a recorded run have different target formats; the error lists them."""
    file, _ = recorded_session("0.61.0", "What is x?")
    session, run = _convert(file, "--to", "untether"), _convert(_TOOLS, "--to", "html")
    assert (session.returncode, run.returncode) == (2, 2)
    assert b"is a session file; it can be converted to atif, claude, claude-jsonl" in session.stderr
    assert b"is a recorded run (events); it can be converted to events, adapter" in run.stderr


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            b"# A page\n",
            "is neither a recorded run (events, stream-json or json) nor a session file",
        ),
        (b"", "is neither a recorded run (events, stream-json or json)"),
        (b'{\n  "name": "a package"\n}\n', "is neither a recorded run (events, stream-json or json)"),
        (gzip.compress(b"{}", mtime=0), "The file is compressed. Try: gzip -dc FILE |"),
        ("{}".encode("utf-16"), "The file is UTF-16"),
        (None, "some.txt: No such file or directory"),
    ],
)
def test_an_invalid_file_gives_one_error(tmp_path: Path, content: bytes | None, why: str) -> None:
    """An invalid file gives one clear sentence, exit code 1 and no output."""
    file = tmp_path / "some.txt"
    if content is not None:
        file.write_bytes(content)
    done = _convert(file, "--to", "atif")
    assert (done.returncode, done.stdout) == (1, b"")
    assert why in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_json_report_of_the_cli(tmp_path: Path) -> None:
    """A json report of the CLI converts to the record that `record.from_report` builds.

    Other formats are refused.
    """
    recording = json.loads((RECORDINGS.parent / "reports" / "tools.json").read_text())
    file = tmp_path / "report.json"
    file.write_text(recording["stdout"])
    done = _convert(file, "--to", "record", "--strict")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == record.encode(record.from_report(recording["stdout"], exit_code=None))
    assert record.decode(done.stdout).tool_calls == 6
    other = _convert(file, "--to", "atif")
    assert other.returncode == 2
    assert b"is a json report; it can be converted to record." in other.stderr
    file.write_text('{"response": "hi", "stats": {}}')
    assert _convert(file, "--to", "record", "--strict").returncode == 3


@pytest.mark.parametrize(
    ("script", "code", "why"),
    [
        ('"$@" >/dev/full', 1, "cannot write to stdout: No space left on device"),
        ('"$@" >&-', 2, "stdout is closed: name a file with --out"),
        ('"$@" --out "$0/none/x"', 1, "none/x: No such file or directory"),
        ('"$@" | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}', 141, ""),
    ],
)
def test_output_that_cannot_be_written(tmp_path: Path, script: str, code: int, why: str) -> None:
    """Output that cannot be written gives one clear sentence and an exit code, never a traceback.

    If the reader closed the pipe, the exit code is 141 and there is no message.
    """
    big = tmp_path / "big.jsonl"
    first, *_ = _encoded("tools").splitlines(keepends=True)
    big.write_bytes(first * 5000)
    argv = [sys.executable, "-m", "geminids", "convert", str(big), "--to", "events"]
    done = subprocess.run(
        ["bash", "-c", script, str(tmp_path), *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == code
    assert why in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert bool(why) == bool(done.stderr)


def test_a_read_error_names_the_input(tmp_path: Path) -> None:
    """A read error names the input file, and no output file is left."""
    done = _convert("/proc/self/mem", "--to", "events", "--out", tmp_path / "x")
    assert done.returncode == 1
    assert b"cannot read /proc/self/mem: Input/output error" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_invalid_lines_are_reported(tmp_path: Path) -> None:
    """Lines that are not events are reported on stderr; the events before them are converted."""
    file = tmp_path / "events.jsonl"
    lines = _encoded("tools").splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:3]) + b"oops\n" * 9 + lines[3][:30])
    done = _convert(file, "--to", "events")
    assert done.returncode == 0
    assert done.stdout == b"".join(lines[:3])
    assert b"skipped lines that are not events: 4, 5, 6, 7, 8, ..." in done.stderr


def test_a_strict_record(tmp_path: Path) -> None:
    """`--strict` exits with 3 if a field of the record is unknown, and names the field.

    Other formats refuse it.
    """
    assert _convert(_TOOLS, "--to", "record", "--strict").returncode == 0
    done = _convert("-", "--to", "record", "--strict", stdin=_STREAM)
    assert done.returncode == 3
    assert b"--strict: models_usage: no model with known tokens" in done.stderr
    assert done.stdout.startswith(b"{")
    assert _convert(_TOOLS, "--to", "atif", "--strict").returncode == 2


def test_out_does_not_overwrite_a_file(tmp_path: Path) -> None:
    """`--out` creates a file with mode 0600. An existing file is replaced only with `--force`."""
    out = tmp_path / "trajectory.json"
    assert _convert(_TOOLS, "--to", "atif", "--out", out).returncode == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert out.read_bytes() == b"".join(encode_run("atif", recorded("tools")))
    assert _convert(_TOOLS, "--to", "events", "--out", out).returncode == 1
    assert _convert(_TOOLS, "--to", "events", "--out", out, "--force").returncode == 0
    assert out.read_bytes() == _encoded("tools")


def test_lines_are_converted_when_they_arrive() -> None:
    """Each line is converted when it arrives: `geminids run -o events | geminids convert - --to
    ...`.
    """
    started, *_ = recorded("tools")
    argv = [sys.executable, "-m", "geminids", "convert", "-", "--to", "events"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(encode_event(started) + b"\n")
        process.stdin.flush()
        assert os.read(process.stdout.fileno(), 65536) == encode_event(started) + b"\n"
        process.stdin.close()
        assert process.wait(20) == 0
