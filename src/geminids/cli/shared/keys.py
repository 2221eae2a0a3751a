"""The keyboard during a turn: keys are not echoed, and one key answers a permission question."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from geminids.events.model import Choice, PermissionAsked
from geminids.views.terminal.chat_permission import is_cut
from geminids.warm.permissions.decide import Said

if TYPE_CHECKING:
    from geminids.views.terminal.chat import ChatView

__all__ = [
    "ask_for_key",
    "discard_input",
    "line_editing",
    "no_echo",
    "read_keys",
    "single_keys",
    "wait_for_silence",
]

_READ_SIZE = 4096


@contextmanager
def no_echo(fd: int) -> Iterator[None]:
    """Do not echo typed text into the output; it stays in the buffer for the next prompt."""
    import termios

    with _changed(fd, off=termios.ECHO):
        yield


@contextmanager
def single_keys(fd: int) -> Iterator[None]:
    """Deliver each key as it is pressed; Ctrl-C is still a signal."""
    import termios

    with _changed(fd, off=termios.ECHO | termios.ICANON):
        yield


@contextmanager
def line_editing(fd: int) -> Iterator[None]:
    """Restore normal line input inside `no_echo` or `single_keys`."""
    import termios

    with _changed(fd, on=termios.ECHO | termios.ICANON):
        yield


@contextmanager
def _changed(fd: int, *, off: int = 0, on: int = 0) -> Iterator[None]:
    import termios

    try:
        before = termios.tcgetattr(fd)
        now = [*before[:3], before[3] & ~off | on, *before[4:]]
        termios.tcsetattr(fd, termios.TCSANOW, now)
    except termios.error:
        # The terminal is gone: the next read reports it.
        yield
        return
    try:
        yield
    finally:
        try:
            termios.tcsetattr(fd, termios.TCSANOW, before)
        except termios.error:
            pass


def read_keys(fd: int, seconds: float) -> str | None:
    """The keys pressed so far; None if none within `seconds`, "" if the terminal is gone."""
    if not select.select([fd], [], [], seconds)[0]:
        return None
    try:
        return os.read(fd, _READ_SIZE).decode("utf-8", "replace")
    except OSError:
        return ""


def wait_for_silence(fd: int, seconds: float) -> None:
    """Discard keys until none is pressed for `seconds`: they were typed before reading the question."""
    while read_keys(fd, seconds):
        pass


def discard_input(fd: int) -> None:
    """Discard typed text that was not read yet."""
    import termios

    try:
        termios.tcflush(fd, termios.TCIFLUSH)
    except termios.error:
        pass


_TICK = 0.1
# Seconds without a key before a key counts as an answer.
_SILENCE = 0.25
_ANSWERS: dict[str, tuple[Choice, str]] = {
    "y": ("allow", "yes"),
    "a": ("allow_always", "always"),
    "n": ("deny", "no"),
    "r": ("deny", "no"),
}
# Enter alone, Ctrl-D, and words that arrived in one read.
_ALIASES = {"": "n", "\x04": "n", "yes": "y", "no": "n", "always": "a"}
_NO = "the user answered no"


def ask_for_key(
    view: ChatView,
    asked: PermissionAsked,
    fd: int,
    is_open: Callable[[], bool],
    read_reason: Callable[[], str | None] | None = None,
) -> Said | None:
    """Show the question and wait for a key; None as soon as the question is no longer open."""
    view.ask(asked)
    with single_keys(fd):
        wait_for_silence(fd, _SILENCE)
        valid = {"y", "n"} | ({"a"} if "allow_always" in asked.options else set())
        valid |= {"r"} if read_reason else set()
        view.offer(asked, more=is_cut(asked), reason=read_reason is not None)
        key = _key(fd, is_open, valid | ({"v"} if is_cut(asked) else set()))
        if key == "v":
            view.answered("v")
            view.ask(asked, whole=True)
            view.offer(asked, more=False, reason=read_reason is not None)
            key = _key(fd, is_open, valid)
    if key is None:
        view.answered("")
        view.go_on()
        return None
    choice, word = _ANSWERS[key]
    view.answered(word)
    reason = read_reason() if read_reason and key == "r" else None
    view.go_on()
    return Said(choice, "person", reason or _NO if choice == "deny" else None)


def _key(fd: int, is_open: Callable[[], bool], valid: set[str]) -> str | None:
    """The first valid key. An escape sequence, as of an arrow key, is not one."""
    while is_open():
        keys = read_keys(fd, _TICK)
        if keys == "":
            return "n"  # the terminal is gone
        if keys is not None:
            word = keys.strip("\r\n").lower()
            if (key := _ALIASES.get(word, word)) in valid:
                return key
    return None
