"""The keyboard of a chat, on a terminal of its own."""

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


def _local(fd: int) -> int:
    flags: int = termios.tcgetattr(fd)[3]
    return flags


def test_a_single_key_is_there_at_once(terminal: tuple[int, int]) -> None:
    """Without Enter and without an echo; the terminal is afterwards as it was."""
    master, slave = terminal
    before = _local(slave)
    with chat_keys.no_echo(slave):
        with chat_keys.single_keys(slave):
            os.write(master, b"y")
            assert chat_keys.read_keys(slave, 5) == "y"
            assert chat_keys.read_keys(slave, 0) is None
        assert not _local(slave) & termios.ECHO
        with chat_keys.line_editing(slave):
            assert _local(slave) & termios.ECHO
            assert _local(slave) & termios.ICANON
    assert _local(slave) == before
    os.set_blocking(master, False)
    with pytest.raises(BlockingIOError):
        os.read(master, 1)


def test_what_was_typed_before_a_question_is_no_answer(terminal: tuple[int, int]) -> None:
    """Who is typing has not read it."""
    master, slave = terminal
    with chat_keys.single_keys(slave):
        os.write(master, b"yay")
        chat_keys.wait_for_silence(slave, 0.05)
        assert chat_keys.read_keys(slave, 0) is None


def test_what_was_typed_can_be_forgotten(terminal: tuple[int, int]) -> None:
    """The rest of a "yes" is not the next prompt."""
    master, slave = terminal
    with chat_keys.single_keys(slave):
        os.write(master, b"es\n")
        while chat_keys.read_keys(slave, 0.01) is None:
            pass
        os.write(master, b"more\n")
        chat_keys.discard_input(slave)
        assert chat_keys.read_keys(slave, 0.05) is None


def test_a_terminal_that_is_gone() -> None:
    """No error: whoever reads next hears of it."""
    read, write = os.pipe()
    with chat_keys.single_keys(read):
        chat_keys.discard_input(read)
        os.close(write)
        assert chat_keys.read_keys(read, 1) == ""
    os.close(read)
