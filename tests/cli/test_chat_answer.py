"""A question that is answered with one key, on a terminal of its own."""

from __future__ import annotations

import io
import os
import pty
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from geminids.cli.shared.keys import ask_for_key
from geminids.events.model import PermissionAsked
from geminids.views.terminal.chat import ChatView
from geminids.warm.permissions.decide import Said


class Person:
    """Presses keys once the question is open."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.shown = io.StringIO()

    def answers(self, *keys: bytes, **fields: Any) -> Said | None:
        given = {"id": "t", "tool": "x", "kind": "other", "title": "it", "always": "calls of x", **fields}
        asked = PermissionAsked(at=0, seq=0, attempt=1, turn=1, **given)
        view = ChatView(self.shown, terminal=False)
        pressing = threading.Thread(target=self._press, args=keys)
        until = time.monotonic() + 20
        pressing.start()
        said = ask_for_key(view, asked, self.slave, lambda: time.monotonic() < until, lambda: "because")
        pressing.join()
        return said

    def _press(self, *keys: bytes) -> None:
        for number, key in enumerate(keys):
            while self.shown.getvalue().count("allow? ") <= (number if keys[0] == b"v" else 0):
                time.sleep(0.01)
            os.write(self.master, key)
            time.sleep(0.2 if number + 1 < len(keys) else 0)  # a key of its own, not one piece with the next


@pytest.fixture
def person() -> Iterator[Person]:
    made = Person()
    yield made
    os.close(made.master)
    os.close(made.slave)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([b"y"], Said("allow", "person")),
        ([b"a"], Said("allow_always", "person")),
        ([b"n"], Said("deny", "person", "the user answered no")),
        ([b"\n"], Said("deny", "person", "the user answered no")),
        ([b"r"], Said("deny", "person", "because")),
        ([b"\x1b[A", b"yn", b"yes\n"], Said("allow", "person")),
    ],
)
def test_keys_that_are_answers(person: Person, keys: list[bytes], said: Said) -> None:
    """One of them is enough; arrow keys and several letters at once are none, a word in one piece is."""
    assert person.answers(*keys) == said


def test_always_where_it_is_not_offered(person: Person) -> None:
    """The key does nothing."""
    said = person.answers(b"a", b"n", options=("allow", "deny"))
    assert said == Said("deny", "person", "the user answered no")


def test_a_long_question_can_be_seen_in_full(person: Person) -> None:
    """With `v`, which is no answer; where nothing is cut it does nothing."""
    said = person.answers(b"v", b"y", command="\n".join(f"row {number}" for number in range(60)))
    assert said == Said("allow", "person")
    assert "row 59" in person.shown.getvalue()


def test_a_question_that_nobody_waits_for(person: Person) -> None:
    """It is left without an answer."""
    asked = PermissionAsked(at=0, seq=0, attempt=1, turn=1, id="t", tool="x", kind="other", title="it")
    view = ChatView(person.shown, terminal=False)
    assert ask_for_key(view, asked, person.slave, lambda: False) is None
