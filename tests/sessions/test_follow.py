"""A live tail of a journal: every whole line once, whatever happens to the file."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.sessions.follow import Follower


def _add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_lines_come_once_and_whole(tmp_path: Path) -> None:
    """A file that is not there yet gives nothing; a half line waits for its end; blank lines are lines."""
    path = tmp_path / "late" / "journal"
    follower = Follower(path)
    assert follower.read_new() == []
    path.parent.mkdir()
    assert follower.read_new() == []
    _add(path, b"one\ntw")
    assert follower.read_new() == [b"one"]
    assert follower.read_new() == []
    _add(path, b"o\n\nthree\n")
    assert follower.read_new() == [b"two", b"", b"three"]
    assert (follower.restarts, follower.problem, follower.behind) == (0, None, 0)


def test_nothing_new_costs_one_stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing happened the file is not opened."""
    path = tmp_path / "journal"
    _add(path, b"one\n")
    follower = Follower(path)
    assert follower.read_new() == [b"one"]
    looks: list[Path] = []
    real = os.stat

    def look(path: Path) -> os.stat_result:
        looks.append(path)
        return real(path)

    monkeypatch.setattr(os, "stat", look)
    monkeypatch.setattr(os, "open", None)
    assert follower.read_new() == []
    assert len(looks) == 1


def test_another_file_under_the_name_is_read_from_its_start(tmp_path: Path) -> None:
    """Replaced by rename: all its lines come, the half line of the old one is forgotten, and it is said."""
    path, new = tmp_path / "journal", tmp_path / "new"
    _add(path, b"one\nhalf of a li")
    follower = Follower(path)
    assert follower.read_new() == [b"one"]
    _add(new, b"uno\ndos and much more than was there before\n")
    new.replace(path)
    assert follower.read_new() == [b"uno", b"dos and much more than was there before"]
    assert follower.restarts == 1


@pytest.mark.parametrize("text", [b"two\n", b"", b"two and longer than it was before\n", b"uno\n"])
def test_a_file_rewritten_in_place_is_read_from_its_start(tmp_path: Path, text: bytes) -> None:
    """Shorter, empty, longer, or as long: another text is found out."""
    path = tmp_path / "journal"
    _add(path, b"one\n")
    follower = Follower(path)
    assert follower.read_new() == [b"one"]
    path.write_bytes(text)
    os.utime(path, ns=(1, 1))
    assert follower.read_new() == text.split(b"\n")[:-1]
    assert follower.restarts == 1


def test_a_file_that_goes_and_comes_again_is_another(tmp_path: Path) -> None:
    """Gone is no error; what comes is read from its start, though it be the same text on the same inode."""
    path = tmp_path / "journal"
    _add(path, b"one\n")
    follower = Follower(path)
    assert follower.read_new() == [b"one"]
    path.unlink()
    assert follower.read_new() == []
    _add(path, b"one\ntwo\n")
    assert follower.read_new() == [b"one", b"two"]
    assert follower.restarts == 1


def test_a_finder_is_asked_until_it_finds_and_when_the_file_is_gone(tmp_path: Path) -> None:
    """The name of a journal is known only when the CLI has made it."""
    asked: list[int] = []
    there: list[Path] = []

    def find() -> Path | None:
        asked.append(1)
        return there[-1] if there else None

    follower = Follower(find)
    assert follower.read_new() == follower.read_new() == []
    assert len(asked) == 2
    first, second = tmp_path / "a", tmp_path / "b"
    _add(first, b"one\n")
    there.append(first)
    assert follower.read_new() == [b"one"]
    assert follower.read_new() == []
    assert len(asked) == 3
    _add(second, b"two\n")
    there.append(second)
    first.unlink()
    follower.read_new()
    assert follower.read_new() == [b"two"]
    assert (follower.path, follower.restarts) == (second, 1)


def test_from_the_end_passes_over_what_is_there(tmp_path: Path) -> None:
    """A resumed session's old lines do not come; a record after a torn one does; another file comes whole."""
    path = tmp_path / "journal"
    _add(path, b"old\n" * 200 + b'{"torn')
    follower = Follower(path, from_end=True)
    assert follower.read_new() == []
    _add(path, b"new\n")
    assert follower.read_new() == [b"new"]
    path.write_bytes(b"all\nanew\n")
    assert follower.read_new() == [b"all", b"anew"]
    late = Follower(tmp_path / "not-yet", from_end=True)
    _add(tmp_path / "not-yet", b"first\n")
    assert late.read_new() == [b"first"]


def test_what_is_no_file_never_blocks(tmp_path: Path) -> None:
    """A FIFO, a folder, a name with NUL, no right to read: a problem that is told, and read when it is over."""
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
    _add(fifo, b"one\n")
    assert follower.read_new() == [b"one"]
    assert (follower.problem, follower.restarts) == (None, 0)


def test_a_line_that_is_too_long_is_dropped_and_told(tmp_path: Path) -> None:
    """The lines around it come."""
    path = tmp_path / "journal"
    follower = Follower(path, limit=100)
    _add(path, b"a\n" + b"x" * 1000 + b"\nb\n")
    assert follower.read_new() == [b"a", b"b"]
    assert follower.dropped == [1000]


@pytest.mark.parametrize("megabytes", [20, pytest.param(100, marks=pytest.mark.deep)])
def test_a_long_line_takes_linear_time_and_memory(tmp_path: Path, megabytes: int) -> None:
    """One line, written in many pieces and read after each; at its end it is held at most three times."""
    path = tmp_path / "journal"
    follower = Follower(path)
    began = time.process_time()
    piece = b"x" * 256 * 1024
    for _ in range(megabytes * 4):
        _add(path, piece)
        assert follower.read_new() == []
    tracemalloc.start()
    _add(path, b"\n")
    (line,) = follower.read_new()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(line) == megabytes * 1024 * 1024
    assert peak < 3.2 * len(line)
    assert time.process_time() - began < 10


def test_a_big_file_is_taken_in_steps(tmp_path: Path) -> None:
    """One call gives some megabytes, `behind` says that there is more, and no line is lost between."""
    path = tmp_path / "journal"
    lines = [b"%06d" % n + b"x" * 1000 for n in range(40_000)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    follower = Follower(path)
    got = follower.read_new()
    assert 0 < len(got) < 20_000
    while follower.behind:
        got += follower.read_new()
    assert got == lines


@given(st.lists(st.one_of(st.binary(max_size=30), st.sampled_from([b"\n", b"a\n", b"\r\n"])), max_size=30))
def test_any_pieces_give_the_lines_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    """However the bytes arrive, the lines are those of the whole."""
    path = tmp_path_factory.mktemp("follow") / "journal"
    follower = Follower(path)
    got = []
    for piece in pieces:
        _add(path, piece)
        got += follower.read_new()
    assert got == b"".join(pieces).split(b"\n")[:-1]
    assert follower.restarts == 0
