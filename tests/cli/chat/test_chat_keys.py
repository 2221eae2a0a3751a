"""The keyboard of a chat. Each test has its own terminal."""

from __future__ import annotations

import os
import pty
import termios
from collections.abc import Iterator

import pytest

from geminids.cli.shared import keys as chat_keys


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    master, slave = pty.openpty()
    yield master, slave
    os.close(slave)
    os.close(master)


def _local_flags(fd: int) -> int:
    flags: int = termios.tcgetattr(fd)[3]
    return flags


def test_a_single_key_is_read_at_once(terminal: tuple[int, int]) -> None:
    """A key is read without Enter and without an echo.

    Afterwards the terminal has its old settings.
    """
    master, slave = terminal
    before = _local_flags(slave)
    with chat_keys.no_echo(slave):
        with chat_keys.single_keys(slave):
            os.write(master, b"y")
            assert chat_keys.read_keys(slave, 5) == "y"
            assert chat_keys.read_keys(slave, 0) is None
        assert not _local_flags(slave) & termios.ECHO
        with chat_keys.line_editing(slave):
            assert _local_flags(slave) & termios.ECHO
            assert _local_flags(slave) & termios.ICANON
    assert _local_flags(slave) == before
    os.set_blocking(master, False)
    with pytest.raises(BlockingIOError):
        os.read(master, 1)


def test_keys_typed_before_a_question_do_not_answer_it(terminal: tuple[int, int]) -> None:
    """`wait_for_silence` discards keys that were typed before a question."""
    master, slave = terminal
    with chat_keys.single_keys(slave):
        os.write(master, b"yay")
        chat_keys.wait_for_silence(slave, 0.05)
        assert chat_keys.read_keys(slave, 0) is None


def test_typed_text_can_be_discarded(terminal: tuple[int, int]) -> None:
    """`discard_input` removes typed text, so the rest of a typed "yes" does not become a prompt."""
    master, slave = terminal
    with chat_keys.single_keys(slave):
        os.write(master, b"es\n")
        while chat_keys.read_keys(slave, 0.01) is None:
            pass
        os.write(master, b"more\n")
        chat_keys.discard_input(slave)
        assert chat_keys.read_keys(slave, 0.05) is None


def test_a_closed_terminal_raises_no_error() -> None:
    """A closed terminal raises no error; `read_keys` returns an empty string."""
    read, write = os.pipe()
    with chat_keys.single_keys(read):
        chat_keys.discard_input(read)
        os.close(write)
        assert chat_keys.read_keys(read, 1) == ""
    os.close(read)
