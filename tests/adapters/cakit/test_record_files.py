"""The files of a run record: complete, private, and one folder for each run."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from geminids.adapters import cakit
from geminids.adapters.cakit.files import RecordFiles, RecordWriter
from geminids.dialects.record import Record, check, decode, encode, from_events, raw_output
from geminids.dialects.record.trajectory import of_events
from geminids.errors import GeminidsError
from random_events import RECORDINGS, recorded

SECRET = "hunter2hunter2"


def _redact(text: str) -> str:
    return text.replace(SECRET, "***")


def _line(content: str, **fields: Any) -> str:
    message = {"type": "message", "role": "assistant", "content": content, "delta": True, **fields}
    return json.dumps(message)


def _mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def _geminids(*words: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "geminids", *map(str, words)]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env={**os.environ, **(env or {})}
    )


def test_the_record_of_a_recording_names_its_trajectory(tmp_path: Path) -> None:
    """The record of saved events names a private trajectory file. It has no output of the CLI,
    because events do not contain it."""
    writer = RecordWriter(RecordFiles(tmp_path / "a" / "b"))
    assert {writer.feed((event,)) for event in recorded("tools")} == {b""}
    record = writer.record()
    assert record.trajectory_path is not None
    trajectory = Path(record.trajectory_path)
    assert trajectory.read_text() == of_events(recorded("tools"))
    assert (record.output_path, record.raw_output, record.telemetry_log) == (None, None, None)
    assert [_mode(path) for path in (trajectory, trajectory.parent, tmp_path / "a" / "b")] == [
        0o600,
        0o700,
        0o700,
    ]
    assert trajectory.parent.parent == tmp_path / "a" / "b"
    assert record.models_usage == from_events(recorded("tools")).models_usage
    assert check(record) == []


def test_the_default_folder_is_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without another folder, the files are in `records` in geminids' data folder, for the user
    only."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "data"))
    files = RecordFiles()
    assert files.folder.parent == tmp_path / "data" / "records"
    assert (_mode(files.folder), _mode(files.folder.parent)) == (0o700, 0o700)


def test_each_run_has_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that start at the same nanosecond have different folders."""
    monkeypatch.setattr("time.time_ns", lambda: 1_794_800_000_000_000_000)
    names = [RecordFiles(tmp_path).folder.name for _ in range(3)]
    assert names == [f"gemini-20261116-033320-179480000000000000{n}" for n in range(3)]


def test_output_is_stdout_and_then_stderr(tmp_path: Path) -> None:
    """The output has all lines of stdout, then a separator line and stderr, whatever came first. No
    other file of the two is left."""
    files = RecordFiles(tmp_path)
    files.add_stderr("a warning\n")
    files.add_stdout("one é\u2028", ())
    files.add_stderr("another\n")
    files.add_stdout("two", ())
    output = files.finish_output(_redact)
    assert output == raw_output("one é\u2028\ntwo\n", "a warning\nanother\n")
    assert files.output.read_text() == output
    assert os.listdir(files.folder) == ["output.log"]
    assert _mode(files.output) == 0o600


def test_output_is_written_while_the_run_goes_on(tmp_path: Path) -> None:
    """What the CLI has printed is in a file at once: a host that is killed leaves it."""
    files = RecordFiles(tmp_path)
    files.add_stdout("one", ())
    files.add_stderr("a warning\n")
    written = {path.name: path.read_text() for path in files.folder.iterdir()}
    assert written == {"output.log": "one\n", "stderr.log": "a warning\n"}
    files.finish_output(_redact)


def test_a_run_without_output_has_an_empty_output_file(tmp_path: Path) -> None:
    """If the CLI printed nothing, the output file exists and is empty."""
    files = RecordFiles(tmp_path)
    assert files.finish_output(_redact) == ""
    assert files.output.read_bytes() == b""


def test_a_secret_in_pieces_is_masked(tmp_path: Path) -> None:
    """A secret that the model sends in several messages is masked: these messages become one. Other
    lines and other messages stay as they were."""
    lines = [
        _line("it is hunter2"),
        _line("hunter2, keep it"),
        '{"type":"tool_use","tool_name":"message"}',
        _line("plain ", timestamp="1"),
        _line("text"),
        'not json "message"',
        _line("hunter2", role="user"),
        '{"type":"message","role":"assistant","content":5}',
        '["message"]',
        "[" * 100_000 + '"message"',
    ]
    files = RecordFiles(tmp_path)
    for line in lines:
        files.add_stdout(line, ())
    output = files.finish_output(_redact) or ""
    first, *rest = output.split("\n")
    assert json.loads(first) == json.loads(_line("it is ***, keep it"))
    assert rest == [*lines[2:], ""]


def test_secrets_in_the_telemetry_log_are_masked(tmp_path: Path) -> None:
    """Secrets in the telemetry log are masked at the end. An empty log is
    removed and not named."""
    files = RecordFiles(tmp_path)
    assert files.finish_telemetry(_redact) is None
    files.telemetry.touch(0o600)
    assert files.finish_telemetry(_redact) is None
    assert not files.telemetry.exists()
    files.telemetry.write_text(f"the key is {SECRET}")
    assert files.finish_telemetry(_redact) == str(files.telemetry)
    assert files.telemetry.read_text() == "the key is ***"
    assert _mode(files.telemetry) == 0o600


def test_write_errors_are_reported_and_named_by_the_check(tmp_path: Path) -> None:
    """If a file cannot be written, a message says so, and the record has no path of it. A run that
    succeeded then has exit code 1, because the strict check finds no trajectory."""
    messages: list[str] = []
    files = RecordFiles(tmp_path, warn=messages.append)
    files.add_stdout("one", ())
    files.folder.joinpath("output.log").unlink()
    files.folder.rmdir()
    files.add_stderr("a warning\n")
    files.add_stderr("another\n")
    assert files.finish_output(_redact) is None
    writer = RecordWriter(files)
    writer.feed(recorded("tools"))
    record = writer.record()
    assert (record.trajectory_path, record.exit_code, record.error) == (None, 1, None)
    assert [problem.field for problem in check(record)] == ["trajectory_path"]
    assert [message.partition(" to ")[0] for message in messages] == [
        "cannot write the output of the CLI",
        "cannot write the trajectory",
    ]


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    """The trajectory does not overwrite a file that something else created in the folder."""
    files = RecordFiles(tmp_path)
    files.trajectory.write_text("mine")
    assert files.write_trajectory("ours") is None
    assert files.trajectory.read_text() == "mine"


@pytest.mark.parametrize("name", ["file/x", "closed/x"])
def test_a_folder_that_cannot_be_created_is_an_error(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be created is an error before the run, which says what to do."""
    (tmp_path / "file").write_text("")
    if name == "closed/x":

        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(GeminidsError, match=r"cannot create a folder in .*[^$]*--record-dir"):
        RecordFiles(tmp_path / name)


def _with_size_limit(program: str, max_size: int, *words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run a Python program that cannot write larger files, as on a full disk."""
    limit = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({max_size}, {max_size}))\n"
    )
    argv = [sys.executable, "-B", "-c", limit + program, *map(str, words)]
    return subprocess.run(argv, capture_output=True, timeout=60)


@pytest.mark.parametrize("max_size", [0, 1000])
def test_a_full_disk_leaves_no_half_trajectory(tmp_path: Path, max_size: int) -> None:
    """On a full disk, no incomplete trajectory is left, and the record names none. The command says
    so, and `--strict` fails."""
    out = tmp_path / "out"
    words = ("convert", RECORDINGS / "tools.jsonl", "--to", "record", "--strict", "--record-dir", out)
    done = _with_size_limit("from geminids.__main__ import main; main()", max_size, *words)
    assert done.returncode == 3
    assert b"cannot write the trajectory to " + str(out).encode() in done.stderr
    assert b"File too large" in done.stderr
    assert [path for path in out.rglob("*") if path.is_file()] == []
    assert decode(done.stdout).trajectory_path is None


@pytest.mark.parametrize("max_size", [0, 1000, 6000])
def test_a_full_disk_leaves_no_half_output(tmp_path: Path, max_size: int) -> None:
    """On a full disk, no incomplete output is left. That is reported once."""
    program = """
from geminids.adapters.cakit.files import RecordFiles
files = RecordFiles(sys.argv[1], warn=print)
files.add_stdout("x" * 5000, ())
files.add_stderr("y" * 5000)
print(files.finish_output(str), list(files.folder.iterdir()))
"""
    done = _with_size_limit(program, max_size, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.decode().splitlines()
    assert first.startswith("cannot write the output of the CLI to ") and last == "None []"


def test_a_command_keeps_its_files(fake_cli: Any, tmp_path: Path) -> None:
    """`run -o record` always writes files. The raw output is what the CLI printed, and `convert` of
    the saved events gives the same record without that output."""
    options = fake_cli("out(INIT + say('hello ') + say('back') + DONE)\nout('careful\\n', 2)")
    saved = tmp_path / "events.jsonl"
    flags = ["--gemini", str(options.gemini), "--home", options.home, "--cwd", options.cwd]
    done = _geminids("run", "hi", "-o", "record", "--save-events", saved, *flags)
    live = decode(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert live.response == "hello back"
    assert live.output_path is not None and live.trajectory_path is not None
    records = Path(os.environ["GEMINIDS_HOME"]) / "records"
    assert Path(live.trajectory_path).parent.parent == Path(live.output_path).parent.parent == records
    stdout, _, stderr = (live.raw_output or "").partition("\n\n----- STDERR -----\n")
    assert [json.loads(line)["type"] for line in stdout.splitlines()] == [
        "init",
        "message",
        "message",
        "message",
        "result",
    ]
    assert stderr == "careful\n"
    assert Path(live.output_path).read_text() == live.raw_output
    done = _geminids("convert", saved, "--to", "record", "--record-dir", tmp_path / "again")
    again = decode(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert again.trajectory_path is not None
    assert Path(live.trajectory_path).read_text() == Path(again.trajectory_path).read_text()
    assert (again.response, again.output_path, again.raw_output) == ("hello back", None, None)


def test_a_warm_flag_does_not_lose_the_output(fake_cli: Any) -> None:
    """With `--warm`, a record is made of a headless run, and stderr says so."""
    options = fake_cli("out(INIT + say('hi') + DONE)")
    flags = ["--gemini", str(options.gemini), "--home", options.home, "--cwd", options.cwd]
    done = _geminids("run", "hi", "-o", "record", "--warm", *flags)
    assert done.returncode == 0
    assert b"--warm has no effect, because -o record needs the CLI's own output" in done.stderr
    assert '"content":"hi"' in (decode(done.stdout).raw_output or "")


@pytest.mark.parametrize(
    ("words", "flag"), [(("run", "hi", "-o", "events"), b"-o"), (("convert", "x", "--to", "atif"), b"--to")]
)
def test_only_a_record_has_files(tmp_path: Path, words: tuple[str, ...], flag: bytes) -> None:
    """`--record-dir` with another format is bad usage and creates no folder."""
    done = _geminids(*words, "--record-dir", tmp_path / "x")
    assert done.returncode == 2
    assert b"--record-dir works only together with `" + flag + b" record`" in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_dry_run_creates_no_folder(fake_cli: Any) -> None:
    """`--dry-run` starts nothing and creates no folder for a record."""
    options = fake_cli("out(INIT + DONE)")
    done = _geminids("run", "hi", "-o", "record", "--dry-run", "--gemini", str(options.gemini), "--offline")
    assert done.returncode == 0, done.stderr
    assert not (Path(os.environ["GEMINIDS_HOME"]) / "records").exists()


def test_a_stored_report_becomes_a_record_with_files(tmp_path: Path) -> None:
    """`convert --to record --strict` of a report with exactly the documented fields succeeds, with and
    without `--record-dir`. With it, output and trajectory are written."""
    stats = {
        "models": {"m": {"tokens": {"prompt": 1, "candidates": 2, "total": 3}, "api": {"totalRequests": 1}}},
        "tools": {"totalCalls": 0},
    }
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"response": "hi", "stats": stats}))
    words = ("convert", report, "--to", "record", "--strict")
    done = _geminids(*words)
    assert (done.returncode, done.stderr) == (0, b"")
    done = _geminids(*words, "--record-dir", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, b"")
    record = decode(done.stdout)
    assert record.output_path is not None and record.trajectory_path is not None
    assert Path(record.output_path).read_text() == report.read_text()
    assert "response: hi\n" in Path(record.trajectory_path).read_text()
    report.write_text(json.dumps({"response": "hi", "stats": {**stats, "tools": {}}}))
    done = _geminids(*words)
    assert done.returncode == 3
    assert done.stderr == b"geminids: --strict: tool_calls: not known\n"


@pytest.mark.anyio
async def test_a_cancelled_run_leaves_its_files(fake_cli: Any, tmp_path: Path) -> None:
    """A caller who is cancelled gets no record, but output and trajectory of the run are written."""
    options = fake_cli("out(INIT + say('so far'))\ntime.sleep(60)")
    parent = tmp_path / "records"

    def has_output() -> bool:
        return any("so far" in path.read_text() for path in parent.rglob("output.log"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: cakit.run("hi", options, record_dir=parent))
        with anyio.fail_after(30):
            while not has_output():
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    [folder] = parent.iterdir()
    assert {"output.log", "trajectory.log"} <= set(os.listdir(folder))
    assert "outcome: interrupted" in (folder / "trajectory.log").read_text()


def test_an_invalid_option_is_a_record(tmp_path: Path) -> None:
    """An invalid option starts nothing. The record has exit code 2 and says which option is wrong, and
    its files exist."""
    for fields, name in (({"timeout": -1}, "timeout"), ({"no_option": 1}, "no_option")):
        record = cakit.run_sync("hi", record_dir=tmp_path, **fields)
        assert (record.exit_code, record.response, record.raw_output) == (2, None, "")
        assert record.error is not None and record.error.startswith("bad_option: ") and name in record.error
        assert record.trajectory_path is not None and record.output_path is not None
        assert Path(record.trajectory_path).exists() and Path(record.output_path).exists()
    record = cakit.run_sync("hi", record_dir=tmp_path, on_permission=lambda asked: "allow")
    assert record.exit_code == 2 and "on_permission" in (record.error or "")


def test_a_missing_cli_is_a_record(tmp_path: Path) -> None:
    """If the CLI is missing, the record has exit code 127 and says so, and its trajectory too."""
    record = cakit.run_sync("hi", record_dir=tmp_path, gemini=str(tmp_path / "none"), cwd=str(tmp_path))
    assert record.exit_code == 127
    assert record.error is not None and record.error.startswith("cli_missing: ")
    assert record.trajectory_path is not None
    assert "kind: cli_missing" in Path(record.trajectory_path).read_text()


def test_telemetry_goes_where_the_caller_wants(fake_cli: Any, tmp_path: Path) -> None:
    """The telemetry log is in the folder of the record. If the caller names another file, the record
    names it; with `telemetry=None`, there is none."""
    body = "out(INIT + say('hi') + DONE)\nname = os.environ.get('GEMINI_TELEMETRY_OUTFILE')\n"
    body += "open(name, 'a').write('{}') if name else None"
    options = fake_cli(body)
    record = cakit.run_sync("hi", options, record_dir=tmp_path / "one")
    assert record.telemetry_log is not None
    assert Path(record.telemetry_log).parent == Path(record.trajectory_path or "").parent
    assert Path(record.telemetry_log).read_text() == "{}"
    mine = tmp_path / "mine.log"
    record = cakit.run_sync("hi", options, record_dir=tmp_path / "two", telemetry=str(mine))
    assert (record.telemetry_log, mine.read_text()) == (str(mine), "{}")
    record = cakit.run_sync("hi", options, record_dir=tmp_path / "three", telemetry=None)
    assert record.telemetry_log is None


@pytest.mark.parametrize("approval", [None, "plan"])
def test_all_tools_are_allowed_unless_the_caller_says_otherwise(
    fake_cli: Any, tmp_path: Path, approval: str | None
) -> None:
    """The CLI gets approval mode `yolo`, as with cakit, unless the caller sets `approval`."""
    options = fake_cli("out(INIT + say(' '.join(sys.argv)) + DONE)")
    fields = {} if approval is None else {"approval": approval}
    flags = {"gemini": options.gemini, "home": options.home, "cwd": options.cwd, **fields}
    record = cakit.run_sync("hi", record_dir=tmp_path, **flags)
    assert f"--approval-mode={approval or 'yolo'}" in (record.response or "")
    record = cakit.run_sync("hi", options, record_dir=tmp_path)
    assert "--approval-mode=default" in (record.response or "")


def test_sync_runs_work_in_an_event_loop(fake_cli: Any, tmp_path: Path) -> None:
    """`run_sync` works inside a running event loop."""
    options = fake_cli("out(INIT + say('hi') + DONE)")

    async def main() -> Record:
        return cakit.run_sync("hi", options, record_dir=tmp_path)

    record = anyio.run(main)
    assert (record.response, decode(encode(record))) == ("hi", record)
