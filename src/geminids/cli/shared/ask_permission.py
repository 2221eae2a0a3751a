"""Ask the person at the terminal for a permission while the run waits."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from geminids.cli.shared import keys as chat_keys
from geminids.events.model import Event, PermissionAsked
from geminids.options import CAPABILITIES, Options
from geminids.warm.permissions.decide import Said

if TYPE_CHECKING:
    import anyio

    from geminids.views.permission import AskingView

__all__ = ["Asker", "create_asker"]

_TICK = 0.1


def create_asker(options: Options, output: str) -> Asker | None:
    """An `Asker` if a permission is set to `ask` and a person watches the run in a terminal."""
    asks = any(getattr(options.permissions, name) == "ask" for name in CAPABILITIES)
    is_terminal = all(file is not None and file.isatty() for file in (sys.stdin, sys.stdout))
    return Asker() if asks and output == "pretty" and is_terminal else None


class Asker:
    """The `on_permission` of a run in a terminal. The follower sets `view` and `writing`."""

    def __init__(self) -> None:
        self.view: AskingView | None = None
        self.writing: anyio.CapacityLimiter | None = None
        """Only its holder may write: while a question is open, nothing else is printed."""
        self._shown: dict[str, anyio.Event] = {}
        self._open: _Question | None = None
        self._stopped = False

    async def __call__(self, asked: PermissionAsked) -> Said:
        import anyio

        # Show all earlier events first.
        await self._seen(asked.id).wait()
        question = self._open = _Question(asked)
        question.withdrawn = self._stopped
        try:
            answer: Said = await anyio.to_thread.run_sync(
                self._ask, question, abandon_on_cancel=True, limiter=self.writing
            )
        finally:
            question.withdrawn = True
        return answer

    def shown(self, events: Iterable[Event]) -> None:
        """Record that these events were shown."""
        for event in events:
            if isinstance(event, PermissionAsked):
                self._seen(event.id).set()

    def stopped(self) -> None:
        """The run was asked to stop: withdraw the open question."""
        self._stopped = True
        if self._open is not None:
            self._open.withdrawn = True

    def _seen(self, asked_id: str) -> anyio.Event:
        import anyio

        return self._shown.setdefault(asked_id, anyio.Event())

    def _ask(self, question: _Question) -> Said:
        from geminids.cli.shared.keys import ask_for_key  # imported late: it loads rich

        assert self.view is not None
        fd = sys.stdin.fileno()
        answer = ask_for_key(
            self.view, question.asked, fd, lambda: not question.withdrawn, lambda: question.reason(fd)
        )
        return answer or Said("deny", "cancel", "the run was stopped before anybody answered")


class _Question:
    """A permission question, open until it is answered or withdrawn."""

    def __init__(self, asked: PermissionAsked) -> None:
        self.asked = asked
        self.withdrawn = False

    def reason(self, fd: int) -> str | None:
        """Read a reason. Polls, so that a stopped run does not wait for the line."""
        print("  because: ", end="", flush=True)
        with chat_keys.line_editing(fd):
            while not self.withdrawn:
                keys = chat_keys.read_keys(fd, _TICK)
                if keys is not None:
                    return keys.strip() or None
        return None
