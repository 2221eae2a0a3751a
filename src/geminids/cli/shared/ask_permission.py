"""Ask the user for permissions in the terminal, while a run or a turn of a chat waits."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import anyio

from geminids.cli.shared import keys as chat_keys
from geminids.cli.shared.keys import ask_for_key
from geminids.events.model import Event, PermissionAsked
from geminids.views.terminal.chat import ChatView
from geminids.warm.permissions.answer import PermissionAnswer

__all__ = ["Asker"]

_TICK = 0.1


class Asker:
    """Asks the user in the terminal about the permission requests of a run or a turn. An `Asker` is
    its `on_permission` function.

    Before it starts, `_Follower` in follow.py, or the chat, sets two attributes: `view`, which shows
    the requests, and `writing`, the lock for everything that prints.
    """

    def __init__(self) -> None:
        self.view: ChatView | None = None
        self.writing: anyio.CapacityLimiter | None = None
        """A lock that must be held to print. The lock ensures that nothing else is printed while a
        question is open."""
        self._shown: dict[str, anyio.Event] = {}
        self._open: _Question | None = None
        self._stopped = False

    async def __call__(self, asked: PermissionAsked) -> PermissionAnswer:
        # Wait until all earlier events are shown.
        await self._seen(asked.id).wait()
        question = self._open = _Question(asked)
        question.withdrawn = self._stopped
        try:
            answer: PermissionAnswer = await anyio.to_thread.run_sync(
                self._ask, question, abandon_on_cancel=True, limiter=self.writing
            )
        finally:
            question.withdrawn = True
        return answer

    def shown(self, events: Iterable[Event]) -> None:
        """Record that these events were shown. The user is asked about a permission request only
        after its event was shown."""
        for event in events:
            if isinstance(event, PermissionAsked):
                self._seen(event.id).set()

    def stopped(self) -> None:
        """Cancel the open question, because the run was asked to stop."""
        self._stopped = True
        if self._open is not None:
            self._open.withdrawn = True

    def _seen(self, asked_id: str) -> anyio.Event:
        return self._shown.setdefault(asked_id, anyio.Event())

    def _ask(self, question: _Question) -> PermissionAnswer:
        assert self.view is not None
        fd = sys.stdin.fileno()
        answer = ask_for_key(
            self.view, question.asked, fd, lambda: not question.withdrawn, lambda: question.reason(fd)
        )
        return answer or PermissionAnswer("deny", "cancel", "the run was stopped before the user answered")


class _Question:
    """A permission request that is shown to the user.

    `withdrawn` is True if the answer is no longer needed.
    """

    def __init__(self, asked: PermissionAsked) -> None:
        self.asked = asked
        self.withdrawn = False

    def reason(self, fd: int) -> str | None:
        """Read a line in which the user says why the request is denied. Return None if the line is
        empty, or if the run is stopped.

        The terminal is polled, so that this method can return as soon as the run is stopped.
        """
        print("  because: ", end="", flush=True)
        with chat_keys.line_editing(fd):
            while not self.withdrawn:
                keys = chat_keys.read_keys(fd, _TICK)
                if keys is not None:
                    return keys.strip() or None
        return None
