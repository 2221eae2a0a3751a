"""A question of the agent's, put to the person at the keyboard and answered with one key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geminids.cli import chat_keys
from geminids.events.model import Choice, PermissionAsked
from geminids.run.warm.permission import Said
from geminids.views.chat_permission import is_cut

if TYPE_CHECKING:
    from geminids.views.chat import ChatView

__all__ = ["answered_by_key"]

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
    with chat_keys.single_keys(fd):
        chat_keys.settled(fd, _SILENCE)
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
        keys = chat_keys.pressed(fd, _TICK)
        if keys == "":
            return "n"  # there is no keyboard any more
        if keys is not None:
            word = keys.strip("\r\n").lower()
            if (key := _SAME.get(word, word)) in valid:
                return key
    return None
