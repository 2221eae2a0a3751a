"""The prompts that a person types, and their history."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from geminids.cli.chat.lines import History, read_prompt


def test_history_outlives_a_chat(tmp_path: Path) -> None:
    """What was typed is there the next time, several lines and odd letters included; only the owner can read it."""
    file = tmp_path / "new" / "chat-history"
    for text in ("one", "two\nlines", "ümlaut \ud800 half"):
        History(file).add(text)
    assert History(file).load() == ["one", "two\nlines", "ümlaut ? half"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_history_is_bounded(tmp_path: Path) -> None:
    """Its newest thousand are kept; the file is cut before it grows without end, and stays private."""
    history = History(tmp_path / "chat-history")
    for number in range(2100):
        history.add(f"prompt {number}")
    assert history.load() == [f"prompt {number}" for number in range(1100, 2100)]
    assert len((tmp_path / "chat-history").read_bytes().splitlines()) == 1000
    assert stat.S_IMODE((tmp_path / "chat-history").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["chat-history"]


def test_a_broken_history_costs_nothing_but_itself(tmp_path: Path) -> None:
    """Lines that cannot be read are passed over; a file that cannot be written is no reason to stop."""
    file = tmp_path / "chat-history"
    file.write_bytes(b'"good"\nbroken\n\xff\xfe\n7\n"also"\n')
    assert History(file).load() == ["good", "also"]
    under_a_file = History(file / "x")
    under_a_file.add("text")
    assert under_a_file.load() == []


def test_a_prompt_that_ends_in_the_middle() -> None:
    """A backslash before the end of the input: what there is counts."""
    rows = iter(["one\\"])

    def read(first: bool) -> str:
        try:
            return next(rows)
        except StopIteration:
            raise EOFError from None

    assert read_prompt(read) == "one"


_READS = """
from pathlib import Path
from geminids.cli.chat.lines import History, PromptReader
print("read:", [PromptReader(History(Path("none"))).read()])
"""


@pytest.mark.parametrize(("term", "read"), [("xterm", ["one\n\ttwo\nthree"]), ("dumb", None)])
def test_a_paste_of_several_lines_is_one_prompt(tmp_path: Path, term: str, read: list[str] | None) -> None:
    """Enter sends it, not the end of each line; a terminal that knows no codes is sent none."""
    pytest.importorskip("readline")
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": term}
    with subprocess.Popen(
        [sys.executable, "-c", _READS], stdin=slave, stdout=slave, stderr=slave, cwd=tmp_path, env=environ
    ):
        os.close(slave)
        shown = _until(master, b"> ")
        assert (b"\x1b[?2004h" in shown) == (read is not None)
        os.write(master, b"\x1b[200~one\r\ttwo\rthree\x1b[201~\r" if read else b"one\r")
        assert str(read or ["one"]).encode() in _until(master, b"]\r\n")
    os.close(master)


def _until(fd: int, end: bytes) -> bytes:
    shown = b""
    while end not in shown:
        shown += os.read(fd, 1000)
    return shown
