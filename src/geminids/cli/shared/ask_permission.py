"""A person at the terminal decides while a run waits: what is asked, one key, and what that means."""

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

__all__ = ["Asker", "asker_for"]

_TICK = 0.1


def asker_for(options: Options, output: str) -> Asker | None:
    """Whoever can be asked: a person who sees the run and has a keyboard, where something is to be asked for."""
    asks = any(getattr(options.permissions, name) == "ask" for name in CAPABILITIES)
    there = output == "pretty" and all(file is not None and file.isatty() for file in (sys.stdin, sys.stdout))
    return Asker() if asks and there else None


class Asker:
    """The `on_permission` of a run that is shown in a terminal; `view` is set by whoever shows it."""

    def __init__(self) -> None:
        self.view: AskingView | None = None
        self.writing: anyio.CapacityLimiter | None = None
        """Whoever has its token may write: while a question is open, nothing else is shown."""
        self._shown: dict[str, anyio.Event] = {}
        self._open: _Question | None = None
        self._stopped = False

    async def __call__(self, asked: PermissionAsked) -> Said:
        import anyio

        # All that came before it is seen first.
        await self._seen(asked.id).wait()
        question = self._open = _Question(asked)
        question.withdrawn = self._stopped
        try:
            said: Said = await anyio.to_thread.run_sync(
                self._ask, question, abandon_on_cancel=True, limiter=self.writing
            )
        finally:
            question.withdrawn = True
        return said

    def shown(self, events: Iterable[Event]) -> None:
        """These events were shown."""
        for event in events:
            if isinstance(event, PermissionAsked):
                self._seen(event.id).set()

    def stopped(self) -> None:
        """The run was asked to end: no answer is waited for."""
        self._stopped = True
        if self._open is not None:
            self._open.withdrawn = True

    def _seen(self, asked_id: str) -> anyio.Event:
        import anyio

        return self._shown.setdefault(asked_id, anyio.Event())

    def _ask(self, question: _Question) -> Said:
        from geminids.cli.shared.keys import answered_by_key  # imported late: it loads rich

        assert self.view is not None
        fd = sys.stdin.fileno()
        said = answered_by_key(
            self.view, question.asked, fd, lambda: not question.withdrawn, lambda: question.reason(fd)
        )
        return said or Said("deny", "cancel", "the run was stopped before anybody answered")


class _Question:
    """What is asked, for as long as somebody waits for the answer."""

    def __init__(self, asked: PermissionAsked) -> None:
        self.asked = asked
        self.withdrawn = False

    def reason(self, fd: int) -> str | None:
        """A line that says why; looked for again and again, so that a run that is stopped need not wait for it."""
        print("  because: ", end="", flush=True)
        with chat_keys.editing(fd):
            while not self.withdrawn:
                keys = chat_keys.pressed(fd, _TICK)
                if keys is not None:
                    return keys.strip() or None
        return None
