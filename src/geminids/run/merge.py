"""Two sources, one stream: what the CLI prints, with what its journal knows besides, in one order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from geminids.events.from_journal import Truth, with_truth
from geminids.events.model import Event, ToolFinished

__all__ = ["Merge", "Put"]

Put = Callable[[list[Event], int], None]

# How long the end of a tool waits for its journal: that comes some milliseconds beside it.
_HOLD = 0.25


class Merge:
    """Passes events on in the order in which they were made. The end of a tool waits for its truth, and what
    comes behind it waits too; never longer than a moment, and not at all while no journal is `following`.

    `missed` counts the calls whose truth never came.
    """

    def __init__(self, put: Put, clock: Callable[[], float] = time.monotonic) -> None:
        self._put = put
        self._clock = clock
        self._waiting: deque[tuple[Event, float, int]] = deque()
        self._truths: dict[str, Truth] = {}
        self._excused: set[str] = set()
        self.following = False
        self.missed = 0

    @property
    def held(self) -> bool:
        return bool(self._waiting)

    def add(self, events: Sequence[Event], size: int = 0, *, ends_tool: bool = True) -> None:
        """Events of either source. `ends_tool` is False where it is known that no tool has ended among them."""
        if not self._waiting and not (self.following and ends_tool):
            self._put(list(events), size)
            return
        until = self._clock() + _HOLD
        share = size // len(events) if events else 0
        self._waiting.extend((event, until, share) for event in events)
        self._pass_on(gives_up=False)

    def know(self, truths: dict[str, Truth]) -> None:
        self._truths |= truths

    def excuse(self, call_id: str) -> None:
        """No journal will tell of this call: its end need not wait."""
        self._excused.add(call_id)

    def release(self, *, now: bool = False) -> None:
        """The journal was read: pass on what need not wait any longer; with `now`, everything.

        Only then: on a busy machine the moment may be over before anybody has looked, and the truth be there.
        """
        self._pass_on(gives_up=True, now=now)

    def _pass_on(self, *, gives_up: bool, now: bool = False) -> None:
        out: list[Event] = []
        size = 0
        while self._waiting:
            event, until, share = self._waiting[0]
            if type(event) is ToolFinished and event.parent is None and event.id not in self._excused:
                truth = self._truths.pop(event.id, None)
                if truth is not None:
                    event = with_truth(event, truth)
                    size += len(truth.output or "")
                elif self.following and not now and not (gives_up and self._clock() >= until):
                    break
                else:
                    self.missed += self.following
            out.append(event)
            size += share
            self._waiting.popleft()
        if out:
            self._put(out, size)
