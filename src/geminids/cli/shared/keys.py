"""Read the keyboard while a run or a turn is active: one key answers a permission request."""

from __future__ import annotations

import os
import select
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from geminids.events.model import Choice, PermissionAsked
from geminids.views.terminal.chat import ChatView
from geminids.views.terminal.chat_permission import is_cut
from geminids.warm.permissions.answer import PermissionAnswer

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
    """Inside this `with` block, the terminal does not show typed text, but keeps the text for the
    next prompt.

    `fd` is the file descriptor of the terminal.
    """
    with _changed(fd, off=termios.ECHO):
        yield


@contextmanager
def single_keys(fd: int) -> Iterator[None]:
    """Inside this `with` block, each key can be read as soon as it is pressed, and is not shown.

    Ctrl-C still sends a signal.
    """
    with _changed(fd, off=termios.ECHO | termios.ICANON):
        yield


@contextmanager
def line_editing(fd: int) -> Iterator[None]:
    """Inside this `with` block, the user can edit a line before it is read, and sees the typed
    text.

    Use it inside a block of `no_echo` or `single_keys`, to suspend the effect of that block.
    """
    with _changed(fd, on=termios.ECHO | termios.ICANON):
        yield


@contextmanager
def _changed(fd: int, *, off: int = 0, on: int = 0) -> Iterator[None]:
    try:
        before = termios.tcgetattr(fd)
        now = [*before[:3], before[3] & ~off | on, *before[4:]]
        termios.tcsetattr(fd, termios.TCSANOW, now)
    except termios.error:
        # The terminal was closed. The next read reports this.
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
    """Wait up to `seconds` for a key, and return the keys that were pressed.

    Return None if no key was pressed, or an empty string if the terminal was closed.
    """
    if not select.select([fd], [], [], seconds)[0]:
        return None
    try:
        return os.read(fd, _READ_SIZE).decode("utf-8", "replace")
    except OSError:
        return ""


def wait_for_silence(fd: int, seconds: float) -> None:
    """Read and ignore keys until no key is pressed for `seconds`.

    Keys that were pressed before a question appeared must not count as its answer.
    """
    while read_keys(fd, seconds):
        pass


def discard_input(fd: int) -> None:
    """Discard the text that the user has typed and that was not read yet."""
    try:
        termios.tcflush(fd, termios.TCIFLUSH)
    except termios.error:
        pass


_TICK = 0.1
# The user can answer only after no key was pressed for this number of seconds.
_SILENCE = 0.25
_ANSWERS: dict[str, tuple[Choice, str]] = {
    "y": ("allow", "yes"),
    "a": ("allow_always", "always"),
    "n": ("deny", "no"),
    "r": ("deny", "no"),
}
# Other input that counts as one of these keys: Enter alone, Ctrl-D, and a word that arrives in one
# read.
_ALIASES = {"": "n", "\x04": "n", "yes": "y", "no": "n", "always": "a"}
_NO = "the user answered no"


def ask_for_key(
    view: ChatView,
    asked: PermissionAsked,
    fd: int,
    is_open: Callable[[], bool],
    read_reason: Callable[[], str | None] | None = None,
) -> PermissionAnswer | None:
    """Show a permission request and return the user's answer.

    Return None if `is_open` becomes false before the user answers. `read_reason` reads a line with
    the reason for a denial; without it, the user cannot give a reason.
    """
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
        view.end_question()
        return None
    choice, word = _ANSWERS[key]
    view.answered(word)
    reason = read_reason() if read_reason and key == "r" else None
    view.end_question()
    return PermissionAnswer(choice, "person", reason or _NO if choice == "deny" else None)


def _key(fd: int, is_open: Callable[[], bool], valid: set[str]) -> str | None:
    """Wait until the user presses one of the keys in `valid`, and return it.

    Other keys are ignored. Return None if `is_open` becomes false, or "n" if the terminal was
    closed.
    """
    while is_open():
        keys = read_keys(fd, _TICK)
        if keys == "":
            return "n"  # the terminal was closed
        if keys is not None:
            word = keys.strip("\r\n").lower()
            if (key := _ALIASES.get(word, word)) in valid:
                return key
    return None
