"""The prompts that a user types in a chat, and their history."""

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
    """A later chat loads the prompts of earlier ones, also those of several lines.

    The file has mode 0600, and characters that cannot be encoded become `?`.
    """
    file = tmp_path / "new" / "chat-history"
    for text in ("one", "two\nlines", "ümlaut \ud800 half"):
        History(file).add(text)
    assert History(file).load() == ["one", "two\nlines", "ümlaut ? half"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_history_is_bounded(tmp_path: Path) -> None:
    """The history keeps the newest 1000 prompts.

    A file that is too long is truncated and keeps mode 0600.
    """
    history = History(tmp_path / "chat-history")
    for number in range(2100):
        history.add(f"prompt {number}")
    assert history.load() == [f"prompt {number}" for number in range(1100, 2100)]
    assert len((tmp_path / "chat-history").read_bytes().splitlines()) == 1000
    assert stat.S_IMODE((tmp_path / "chat-history").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["chat-history"]


def test_a_broken_history_is_no_error(tmp_path: Path) -> None:
    """Unreadable lines of the history are skipped. A history that cannot be written is no error."""
    file = tmp_path / "chat-history"
    file.write_bytes(b'"good"\nbroken\n\xff\xfe\n7\n"also"\n')
    assert History(file).load() == ["good", "also"]
    unwritable = History(file / "x")
    unwritable.add("text")
    assert unwritable.load() == []


def test_input_that_ends_after_a_backslash() -> None:
    """If the input ends after a line with a backslash, the lines so far are the prompt."""
    rows = iter(["one\\"])

    def read(first: bool) -> str:
        try:
            return next(rows)
        except StopIteration:
            raise EOFError from None

    assert read_prompt(read) == "one"


_PROGRAM = """
from pathlib import Path
from geminids.cli.chat.lines import History, PromptReader
print("read:", [PromptReader(History(Path("none"))).read()])
"""


@pytest.mark.parametrize(("term", "read"), [("xterm", ["one\n\ttwo\nthree"]), ("dumb", None)])
def test_a_paste_of_several_lines_is_one_prompt(tmp_path: Path, term: str, read: list[str] | None) -> None:
    """Pasted text of several lines is one prompt, sent with Enter.

    A dumb terminal gets no escape code that turns this on.
    """
    pytest.importorskip("readline")
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": term}
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=slave, stdout=slave, stderr=slave, cwd=tmp_path, env=environ
    ):
        os.close(slave)
        shown = _read_until(master, b"> ")
        assert (b"\x1b[?2004h" in shown) == (read is not None)
        os.write(master, b"\x1b[200~one\r\ttwo\rthree\x1b[201~\r" if read else b"one\r")
        assert str(read or ["one"]).encode() in _read_until(master, b"]\r\n")
    os.close(master)


def _read_until(fd: int, end: bytes) -> bytes:
    shown = b""
    while end not in shown:
        shown += os.read(fd, 1000)
    return shown
