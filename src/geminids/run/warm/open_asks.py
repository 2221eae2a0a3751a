"""The permissions that the agent waits for in one turn: each is answered once, by a decision or by the turn's end."""

from __future__ import annotations

import time
from collections.abc import Callable

from geminids.events.from_acp import AcpTranslator
from geminids.events.ledger import Ledger
from geminids.events.model import Event, PermissionAsked
from geminids.run.warm.asks import asked_of, option_of
from geminids.run.warm.permission import Desk, Said
from geminids.run.warm.seat import Seat
from geminids.wire.acp import Note

__all__ = ["OpenAsks"]

_STOPPED = "the turn was stopped before anybody answered"


class OpenAsks:
    """Keeps what was asked until it is answered. `began` is told of a command that may run now."""

    def __init__(
        self, seat: Seat, desk: Desk, updates: AcpTranslator, ledger: Ledger, began: Callable[[str], None]
    ) -> None:
        self._seat = seat
        self._desk = desk
        self._updates = updates
        self._ledger = ledger
        self._began = began
        self._open: dict[str, tuple[Note, PermissionAsked, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._open

    @property
    def oldest(self) -> tuple[PermissionAsked, float] | None:
        """What has been waited for longest, and since when (monotonic)."""
        return next(((asked, began) for _, asked, began in self._open.values()), None)

    def take(self, ask: Note) -> tuple[PermissionAsked, list[Event]]:
        """The agent asks: what it wants, and the events that say so."""
        assert ask.permission is not None
        started, events = self._updates.asked(ask.permission.tool_call)
        asked = asked_of(ask.permission, started, self._ledger, self._seat.cwd, self._seat.process.redactor)
        self._open[asked.id] = (ask, asked, time.monotonic())
        return asked, [*events, asked]

    async def decide(self, asked: PermissionAsked, add: Callable[[list[Event]], None]) -> None:
        """Have it decided, and answer."""
        decided = await self._desk.decide(asked)
        ask, _, _ = self._open.pop(asked.id, (None, None, None))
        if ask is None or ask.permission is None:
            return  # the turn was stopped meanwhile: that was the answer
        option = option_of(ask.permission, yes=decided.decision != "deny")
        events: list[Event] = [decided]
        if decided.decision == "deny" or option is None:
            events += self._updates.refused(asked.id, decided.reason or f"denied by the {decided.by}")
        else:
            self._updates.allowed(asked.id)
            if asked.command is not None:
                self._began(asked.id)
        # First the answer: the tool need not wait for whoever reads the events.
        self._seat.process.connection.answer(ask, option)
        add(events)

    def leave(self, reason: str | None, add: Callable[[list[Event]], None]) -> None:
        """Nobody's answer is waited for any longer."""
        for ask, asked, began in list(self._open.values()):
            decided = self._desk.note(asked, Said("deny", "cancel", reason), began)
            self._seat.process.connection.answer(ask, None)
            add([decided, *self._updates.refused(asked.id, _STOPPED)])
        self._open.clear()
