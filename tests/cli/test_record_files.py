"""The files of a run record: there when the record names them, and readable by their owner alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids import encode_event
from geminids.cli.shared.record_files import RecordFiles
from geminids.dialects.record import check, decode, from_events
from geminids.dialects.record.trajectory import of_events
from geminids.errors import GeminidsError
from random_events import RECORDINGS, recorded


def _spoken(folder: Path, name: str = "tools") -> bytes:
    files = RecordFiles(str(folder))
    said = [files.feed((event,)) for event in recorded(name)]
    assert set(said) == {b""}
    return files.finish()


def test_the_record_names_its_files(tmp_path: Path) -> None:
    """What was heard, line by line, and the trajectory of it; the rest is the record of the events."""
    record = decode(_spoken(tmp_path / "a" / "b"))
    assert record.output_path is not None and record.trajectory_path is not None
    log, readable = Path(record.output_path), Path(record.trajectory_path)
    assert log.name == "gemini-20261116-033320-1794800000000000000.log"
    assert readable.name == "gemini-20261116-033320-1794800000000000000.trajectory.log"
    assert log.read_bytes() == b"".join(encode_event(event) + b"\n" for event in recorded("tools"))
    assert readable.read_text() == of_events(recorded("tools"))
    assert record.raw_output == log.read_text()
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in (log, readable))
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert record.models_usage == from_events(recorded("tools")).models_usage
    assert check(record, trajectory=True) == []


def test_runs_of_the_same_moment_have_files_of_their_own(tmp_path: Path) -> None:
    """Nothing is written over."""
    first, second = decode(_spoken(tmp_path)), decode(_spoken(tmp_path, "plain"))
    assert first.output_path != second.output_path
    assert len(list(tmp_path.iterdir())) == 4
    assert second.raw_output is not None and "Do the plain." in second.raw_output


def test_a_run_without_events_has_no_files(tmp_path: Path) -> None:
    """And its record names none."""
    record = decode(RecordFiles(str(tmp_path)).finish())
    assert (record.output_path, record.trajectory_path, record.raw_output) == (None, None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """Before the run begins."""
    (tmp_path / "file").write_text("")
    with pytest.raises(GeminidsError, match="cannot create"):
        RecordFiles(str(tmp_path / "file" / "x"))


def test_files_that_cannot_be_written_do_not_cost_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told once, and the record names none."""
    files = RecordFiles(str(tmp_path / "gone"))
    (tmp_path / "gone").rmdir()
    for event in recorded("plain"):
        files.feed((event,))
    record = decode(files.finish())
    assert (record.response, record.output_path) == ("It is plain: é ✓ 🙂.", None)
    assert capsys.readouterr().err.count("cannot write the files of the record to") == 1


def test_a_trajectory_that_cannot_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another's file stays as it is; the log is whole, and is kept."""
    theirs = tmp_path / "gemini-20261116-033320-1794800000000000000.trajectory.log"
    theirs.write_text("mine")
    record = decode(_spoken(tmp_path))
    assert (record.trajectory_path, theirs.read_text()) == (None, "mine")
    assert record.output_path is not None and record.raw_output == Path(record.output_path).read_text()
    assert "File exists" in capsys.readouterr().err


@pytest.mark.parametrize("allowed", [0, 1000, 6763, 7000])
def test_a_full_disk_leaves_no_half_file(tmp_path: Path, allowed: int) -> None:
    """What is there under its name is whole; the record names nothing else."""
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({allowed}, {allowed}))\n"
        "from geminids.__main__ import main; main()"
    )
    file, out = RECORDINGS / "tools.jsonl", tmp_path / "out"
    argv = [sys.executable, "-B", "-c", script, "convert", file, "--to", "record", "--record-dir", out]
    done = subprocess.run(list(map(str, argv)), capture_output=True, timeout=60)
    record = decode(done.stdout)
    assert done.returncode == 0
    assert b"to " + str(out).encode() + b": File too large" in done.stderr
    assert record.trajectory_path is None
    left = list(out.iterdir())
    assert [str(one) for one in left] == ([record.output_path] if record.output_path else [])
    assert all(one.read_bytes() == file.read_bytes() for one in left)
    assert bool(left) == (allowed >= file.stat().st_size)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error before the run begins, not a sentence after it."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(GeminidsError, match=r"is not writable[^$]*another folder with --record-dir"):
        RecordFiles(str(tmp_path))


def test_a_time_that_no_calendar_has(tmp_path: Path) -> None:
    """The log has a name all the same."""
    files = RecordFiles(str(tmp_path))
    files.feed([msgspec.structs.replace(recorded("plain")[0], at=2**62)])
    assert (decode(files.finish()).output_path or "").startswith(str(tmp_path / "gemini-00000000-000000-"))


def test_strict_demands_the_trajectory_that_was_asked_for(tmp_path: Path) -> None:
    """Exit 3 where its file could not be written; without --record-dir nobody asked."""
    (tmp_path / "gemini-20261116-033320-1794800000000000000.trajectory.log").write_text("mine")
    words = ("convert", RECORDINGS / "tools.jsonl", "--to", "record", "--strict")
    assert _geminids(*words).returncode == 0
    done = _geminids(*words, "--record-dir", tmp_path)
    assert done.returncode == 3
    assert b"--strict: trajectory_path: missing" in done.stderr


def test_a_run_keeps_its_files(stand_in: Any, tmp_path: Path) -> None:
    """`run --record-dir`, and `convert` of what it saved: the same record, files of their own."""
    options = stand_in("out(INIT + say('hello ') + say('back') + DONE)")
    saved = tmp_path / "events.jsonl"
    more = ["--gemini", str(options.gemini), "--home", options.home, "--cwd", options.cwd]
    live = _geminids(
        *("run", "hi", "-o", "record", "--record-dir", tmp_path / "live", "--save-events", saved, *more)
    )
    again = _geminids("convert", saved, "--to", "record", "--record-dir", tmp_path / "again")
    assert (live.returncode, again.returncode, live.stderr, again.stderr) == (0, 0, b"", b"")
    one, other = decode(live.stdout), decode(again.stdout)
    assert one.raw_output == other.raw_output == saved.read_text()
    assert one.response == other.response == "hello back"
    assert one.trajectory_path is not None and other.trajectory_path is not None
    assert Path(one.trajectory_path).parent == tmp_path / "live"
    assert Path(one.trajectory_path).read_text() == Path(other.trajectory_path).read_text()


@pytest.mark.parametrize(
    ("words", "flag"), [(("run", "hi", "-o", "events"), b"-o"), (("convert", "x", "--to", "atif"), b"--to")]
)
def test_only_a_record_has_files(tmp_path: Path, words: tuple[str, ...], flag: bytes) -> None:
    """Another format with that flag is bad usage, before anything is done."""
    done = _geminids(*words, "--record-dir", tmp_path / "x")
    assert done.returncode == 2
    assert b"--record-dir works only with " + flag + b" record" in done.stderr
    assert not (tmp_path / "x").exists()


def _geminids(*words: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "geminids", *map(str, words)]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env={**os.environ, **(env or {})}
    )
