"""A permission question in a chat, answered with one key. Each test has its own terminal."""

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
from geminids.warm.permissions.answer import PermissionAnswer


class Person:
    """A simulated user who presses keys once the question is shown."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.shown = io.StringIO()

    def answer_with(self, *keys: bytes, **fields: Any) -> PermissionAnswer | None:
        values = {"id": "t", "tool": "x", "kind": "other", "title": "use x", "always": "calls of x", **fields}
        asked = PermissionAsked(at=0, seq=0, attempt=1, turn=1, **values)
        view = ChatView(self.shown, terminal=False)
        key_presses = threading.Thread(target=self._press, args=keys)
        deadline = time.monotonic() + 20
        key_presses.start()
        answer = ask_for_key(view, asked, self.slave, lambda: time.monotonic() < deadline, lambda: "because")
        key_presses.join()
        return answer

    def _press(self, *keys: bytes) -> None:
        for number, key in enumerate(keys):
            while self.shown.getvalue().count("allow? ") <= (number if keys[0] == b"v" else 0):
                time.sleep(0.01)
            os.write(self.master, key)
            time.sleep(0.2 if number + 1 < len(keys) else 0)  # so that each key arrives in its own read


@pytest.fixture
def person() -> Iterator[Person]:
    simulated_user = Person()
    yield simulated_user
    os.close(simulated_user.master)
    os.close(simulated_user.slave)


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ([b"y"], PermissionAnswer("allow", "person")),
        ([b"a"], PermissionAnswer("allow_always", "person")),
        ([b"n"], PermissionAnswer("deny", "person", "the user answered no")),
        ([b"\n"], PermissionAnswer("deny", "person", "the user answered no")),
        ([b"r"], PermissionAnswer("deny", "person", "because")),
        ([b"\x1b[A", b"yn", b"yes\n"], PermissionAnswer("allow", "person")),
    ],
)
def test_keys_that_answer(person: Person, keys: list[bytes], answer: PermissionAnswer) -> None:
    """One key answers the question, and so does a whole word that arrives at once.

    Arrow keys and two letters at once are ignored.
    """
    assert person.answer_with(*keys) == answer


def test_always_is_ignored_if_it_is_not_offered(person: Person) -> None:
    """The key `a` (always) has no effect if the question does not offer `allow_always`."""
    answer = person.answer_with(b"a", b"n", options=("allow", "deny"))
    assert answer == PermissionAnswer("deny", "person", "the user answered no")


def test_a_long_question_can_be_seen_in_full(person: Person) -> None:
    """The key `v` shows a shortened question in full. It does not answer the question."""
    answer = person.answer_with(b"v", b"y", command="\n".join(f"row {number}" for number in range(60)))
    assert answer == PermissionAnswer("allow", "person")
    assert "row 59" in person.shown.getvalue()


def test_a_closed_question_gets_no_answer(person: Person) -> None:
    """`ask_for_key` returns None for a question that is no longer open."""
    asked = PermissionAsked(at=0, seq=0, attempt=1, turn=1, id="t", tool="x", kind="other", title="use x")
    view = ChatView(person.shown, terminal=False)
    assert ask_for_key(view, asked, person.slave, lambda: False) is None
