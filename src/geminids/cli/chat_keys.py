"""The keyboard of a chat while a turn goes on: nothing is echoed, and a single key can be an answer."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["editing", "forget_typed", "pressed", "settled", "single_keys", "unechoed"]

_LONGEST = 4096


@contextmanager
def unechoed(fd: int) -> Iterator[None]:
    """What is typed does not mix with what is shown; it waits for the next prompt."""
    import termios

    with _changed(fd, off=termios.ECHO):
        yield


@contextmanager
def single_keys(fd: int) -> Iterator[None]:
    """Each key is there as it is pressed; Ctrl-C stays a signal."""
    import termios

    with _changed(fd, off=termios.ECHO | termios.ICANON):
        yield


@contextmanager
def editing(fd: int) -> Iterator[None]:
    """A line is typed as at any prompt, within one of the others."""
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
        # No terminal any more: whoever reads from it next will hear so.
        yield
        return
    try:
        yield
    finally:
        try:
            termios.tcsetattr(fd, termios.TCSANOW, before)
        except termios.error:
            pass


def pressed(fd: int, seconds: float) -> str | None:
    """The keys that were pressed since, None where there were none in time, "" where the keyboard is gone."""
    if not select.select([fd], [], [], seconds)[0]:
        return None
    try:
        return os.read(fd, _LONGEST).decode("utf-8", "replace")
    except OSError:
        return ""


def settled(fd: int, seconds: float) -> None:
    """Wait until nobody has typed for so long: who is typing has not read the question yet."""
    while pressed(fd, seconds):
        pass


def forget_typed(fd: int) -> None:
    """Drop what was typed and not read."""
    import termios

    try:
        termios.tcflush(fd, termios.TCIFLUSH)
    except termios.error:
        pass
