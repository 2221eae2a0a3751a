"""The keyboard of a chat during a turn: nothing is echoed, and a single key can answer a question."""

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

__all__ = ["answered_by_key", "editing", "forget_typed", "pressed", "settled", "single_keys", "unechoed"]

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


_TICK = 0.1
# Who is typing when a question comes up has not read it: keys count after so long a silence.
_SILENCE = 0.25
_ANSWERS: dict[str, tuple[Choice, str]] = {
    "y": ("allow", "yes"),
    "a": ("allow_always", "always"),
    "n": ("deny", "no"),
    "r": ("deny", "no"),
}
# Enter alone, Ctrl-D, and words that came in one piece.
_SAME = {"": "n", "\x04": "n", "yes": "y", "no": "n", "always": "a"}
_NO = "the person said no"


def answered_by_key(
    view: ChatView,
    asked: PermissionAsked,
    fd: int,
    waits: Callable[[], bool],
    because: Callable[[], str | None] | None = None,
) -> Said | None:
    """Show it and wait for the answer; None as soon as nobody `waits` for one. `because` reads a reason."""
    view.ask(asked)
    with single_keys(fd):
        settled(fd, _SILENCE)
        valid = {"y", "n"} | ({"a"} if "allow_always" in asked.options else set())
        valid |= {"r"} if because else set()
        view.offer(asked, more=is_cut(asked), reason=because is not None)
        key = _key(fd, waits, valid | ({"v"} if is_cut(asked) else set()))
        if key == "v":
            view.answered("v")
            view.ask(asked, whole=True)
            view.offer(asked, more=False, reason=because is not None)
            key = _key(fd, waits, valid)
    if key is None:
        view.answered("")
        view.go_on()
        return None
    choice, word = _ANSWERS[key]
    view.answered(word)
    reason = because() if because and key == "r" else None
    view.go_on()
    return Said(choice, "person", reason or _NO if choice == "deny" else None)


def _key(fd: int, waits: Callable[[], bool], valid: set[str]) -> str | None:
    """The key that was pressed, of those that are answers; whole sequences, as of an arrow key, are none."""
    while waits():
        keys = pressed(fd, _TICK)
        if keys == "":
            return "n"  # there is no keyboard any more
        if keys is not None:
            word = keys.strip("\r\n").lower()
            if (key := _SAME.get(word, word)) in valid:
                return key
    return None
