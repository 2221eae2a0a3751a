"""`Follower` reads new lines of a journal: each whole line once, also if the file is replaced."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.sessions.follow import Follower


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_each_whole_line_is_returned_once(tmp_path: Path) -> None:
    """A missing file gives no lines.

    A partial line is returned once it is complete, and blank lines are lines.
    """
    path = tmp_path / "late" / "journal"
    follower = Follower(path)
    assert follower.read_new() == []
    path.parent.mkdir()
    assert follower.read_new() == []
    _append(path, b"one\ntw")
    assert follower.read_new() == [b"one"]
    assert follower.read_new() == []
    _append(path, b"o\n\nthree\n")
    assert follower.read_new() == [b"two", b"", b"three"]
    assert (follower.restarts, follower.problem, follower.behind) == (0, None, 0)


def test_nothing_new_costs_one_stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file has not changed, `read_new` calls `stat` once and does not open it."""
    path = tmp_path / "journal"
    _append(path, b"one\n")
    follower = Follower(path)
    assert follower.read_new() == [b"one"]
    stat_calls: list[Path] = []
    real = os.stat

    def counted_stat(path: Path) -> os.stat_result:
        stat_calls.append(path)
        return real(path)

    monkeypatch.setattr(os, "stat", counted_stat)
    monkeypatch.setattr(os, "open", None)
    assert follower.read_new() == []
    assert len(stat_calls) == 1


def test_a_replaced_file_is_read_from_its_start(tmp_path: Path) -> None:
    """A file that replaces the old one by rename is read from its start.

    The partial line of the old file is dropped.
    """
    path, new = tmp_path / "journal", tmp_path / "new"
    _append(path, b"one\nhalf of a li")
    follower = Follower(path)
    assert follower.read_new() == [b"one"]
    _append(new, b"uno\ndos and much more than was there before\n")
    new.replace(path)
    assert follower.read_new() == [b"uno", b"dos and much more than was there before"]
    assert follower.restarts == 1


@pytest.mark.parametrize("text", [b"two\n", b"", b"two and longer than it was before\n", b"uno\n"])
def test_a_file_rewritten_in_place_is_read_from_its_start(tmp_path: Path, text: bytes) -> None:
    """A rewritten file is detected and read from its start, whether it is shorter, empty, longer or
    equally long.
    """
    path = tmp_path / "journal"
    _append(path, b"one\n")
    follower = Follower(path)
    assert follower.read_new() == [b"one"]
    path.write_bytes(text)
    os.utime(path, ns=(1, 1))
    assert follower.read_new() == text.split(b"\n")[:-1]
    assert follower.restarts == 1


def test_a_deleted_and_recreated_file_is_read_from_its_start(tmp_path: Path) -> None:
    """A deleted file is no error.

    A new file with the name is read from its start, even with the same text.
    """
    path = tmp_path / "journal"
    _append(path, b"one\n")
    follower = Follower(path)
    assert follower.read_new() == [b"one"]
    path.unlink()
    assert follower.read_new() == []
    _append(path, b"one\ntwo\n")
    assert follower.read_new() == [b"one", b"two"]
    assert follower.restarts == 1


def test_a_path_function_is_called_until_it_returns_a_path(tmp_path: Path) -> None:
    """A function that finds the path is called until it returns one, and again when the file is
    gone.
    """
    calls: list[int] = []
    known: list[Path] = []

    def find() -> Path | None:
        calls.append(1)
        return known[-1] if known else None

    follower = Follower(find)
    assert follower.read_new() == follower.read_new() == []
    assert len(calls) == 2
    first, second = tmp_path / "a", tmp_path / "b"
    _append(first, b"one\n")
    known.append(first)
    assert follower.read_new() == [b"one"]
    assert follower.read_new() == []
    assert len(calls) == 3
    _append(second, b"two\n")
    known.append(second)
    first.unlink()
    follower.read_new()
    assert follower.read_new() == [b"two"]
    assert (follower.path, follower.restarts) == (second, 1)


def test_from_end_skips_existing_lines(tmp_path: Path) -> None:
    """With `from_end`, existing lines are skipped, also a partial last line.

    A file that is replaced or created later is read whole.
    """
    path = tmp_path / "journal"
    _append(path, b"old\n" * 200 + b'{"torn')
    follower = Follower(path, from_end=True)
    assert follower.read_new() == []
    _append(path, b"new\n")
    assert follower.read_new() == [b"new"]
    path.write_bytes(b"other\nlines\n")
    assert follower.read_new() == [b"other", b"lines"]
    late = Follower(tmp_path / "not-yet", from_end=True)
    _append(tmp_path / "not-yet", b"first\n")
    assert late.read_new() == [b"first"]


def test_a_fifo_or_folder_does_not_block(tmp_path: Path) -> None:
    """A FIFO, a folder or an invalid name does not block and is reported as a problem.

    A file that replaces it is read.
    """
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, Path("a\0b")):
        follower = Follower(path)
        assert follower.read_new() == []
        assert follower.problem is not None
        assert Follower(path, from_end=True).read_new() == []
    follower = Follower(fifo)
    follower.read_new()
    fifo.unlink()
    _append(fifo, b"one\n")
    assert follower.read_new() == [b"one"]
    assert (follower.problem, follower.restarts) == (None, 0)


def test_a_line_that_is_too_long_is_dropped_and_reported(tmp_path: Path) -> None:
    """A line over the limit is dropped and its length is reported; the other lines are returned."""
    path = tmp_path / "journal"
    follower = Follower(path, limit=100)
    _append(path, b"a\n" + b"x" * 1000 + b"\nb\n")
    assert follower.read_new() == [b"a", b"b"]
    assert follower.dropped == [1000]


@pytest.mark.parametrize("megabytes", [20, pytest.param(100, marks=pytest.mark.deep)])
def test_a_long_line_takes_linear_time_and_memory(tmp_path: Path, megabytes: int) -> None:
    """A long line that grows in small pieces needs linear time, and at most about three times its
    size of memory.
    """
    path = tmp_path / "journal"
    follower = Follower(path)
    start = time.process_time()
    piece = b"x" * 256 * 1024
    for _ in range(megabytes * 4):
        _append(path, piece)
        assert follower.read_new() == []
    tracemalloc.start()
    _append(path, b"\n")
    (line,) = follower.read_new()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(line) == megabytes * 1024 * 1024
    assert peak < 3.2 * len(line)
    assert time.process_time() - start < 10


def test_a_big_file_is_read_in_steps(tmp_path: Path) -> None:
    """One call returns a part of a big file, and `behind` is not 0 until all lines are read."""
    path = tmp_path / "journal"
    lines = [b"%06d" % n + b"x" * 1000 for n in range(40_000)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    follower = Follower(path)
    lines_read = follower.read_new()
    assert 0 < len(lines_read) < 20_000
    while follower.behind:
        lines_read += follower.read_new()
    assert lines_read == lines


@given(st.lists(st.one_of(st.binary(max_size=30), st.sampled_from([b"\n", b"a\n", b"\r\n"])), max_size=30))
def test_any_pieces_give_the_lines_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    """However the bytes arrive, the lines returned are those of the whole file."""
    path = tmp_path_factory.mktemp("follow") / "journal"
    follower = Follower(path)
    lines_read = []
    for piece in pieces:
        _append(path, piece)
        lines_read += follower.read_new()
    assert lines_read == b"".join(pieces).split(b"\n")[:-1]
    assert follower.restarts == 0
