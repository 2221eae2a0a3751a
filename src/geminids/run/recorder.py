"""The events of one run: numbered, accumulated, and queued for the consumer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from geminids.events.fold import Fold
from geminids.events.ledger import Ledger
from geminids.events.model import Decision, EndedProcess, Event, Finished, Level, Started, Usage
from geminids.ids import new_run_id
from geminids.run.cost import Prices
from geminids.run.outbox import Events, Outbox
from geminids.run.result import Result
from geminids.wire.endings import Ending

__all__ = ["EventStream", "RunRecorder", "Traces", "finished_of"]


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt leaves behind. `redacted` takes secrets out of a text."""

    session_id: str | None
    exit_code: int | None = None
    ended: tuple[EndedProcess, ...] = ()
    complete: bool = False
    decisions: tuple[Decision, ...] = ()
    prices: Prices | None = None
    finish_reason: str | None = None
    redacted: Callable[[str], str] = str


def finished_of(
    recorder: RunRecorder,
    ending: Ending,
    traces: Traces | None,
    usage: Usage | None,
    *,
    began: float,
    clear_session: bool = False,
    conversation: bytes = b"",
    value: Any = None,
) -> tuple[Finished, Result]:
    """The last event and the result, the same for both transports; `traces` is None if nothing was started."""
    fold, ledger = recorder.fold, recorder.ledger
    found = traces or Traces(session_id=None, redacted=lambda text: "")
    finished = Finished(
        at=int(time.time() * 1000),
        seq=ledger.next(),
        attempt=ledger.attempt,
        turn=ledger.turn,
        run_id=recorder.run_id,
        outcome=ending.outcome,
        failure=ending.failure,
        reason=ending.reason,
        # Once more: a secret whose halves stand before and after a tool call is whole only here.
        text=found.redacted(fold.text),
        answer=found.redacted(fold.answer),
        session_id=found.session_id,
        clear_session=ending.clear_session or clear_session,
        usage=usage,
        attempts=fold.attempts,
        exit_code=found.exit_code,
        duration_ms=int((time.monotonic() - began) * 1000),
        ended=found.ended,
        complete=found.complete,
        decisions=found.decisions,
        value=value,
        stall=ledger.stall if ending.outcome == "timed_out" else None,
        cost=found.prices.total([*fold.earlier, *fold.tokens], usage) if found.prices else None,
        finish_reason=found.finish_reason,
        discarded=tuple(fold.discarded),
    )
    return finished, Result.of(finished, conversation)


class RunRecorder:
    """Numbers events (`ledger`), accumulates what the end must say (`fold`), and queues them (`outbox`)."""

    def __init__(self, outbox: Outbox | None = None) -> None:
        self.run_id = new_run_id()
        self.ledger = Ledger()
        self.fold = Fold()
        self.outbox = Outbox() if outbox is None else outbox

    def put(self, events: Sequence[Event], size: int = 0) -> None:
        """Emit events; `size` is how many bytes of output they stand for."""
        self.fold.add(events)
        self.outbox.put(events, size)

    def notice(self, level: Level, code: str, message: str) -> None:
        """Emit a notice."""
        self.outbox.put([self.ledger.notice(level, code, message)])

    def started(self, *, at: int | None = None, **fields: Any) -> Started:
        """The first event of an attempt; `fields` are those that are not the same for every event."""
        ledger = self.ledger
        return Started(
            at=int(time.time() * 1000) if at is None else at,
            seq=ledger.next(),
            attempt=ledger.attempt,
            turn=ledger.turn,
            run_id=self.run_id,
            **fields,
        )


class EventStream:
    """The events of a run, one by one or in batches."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._events = Events(outbox)

    def __aiter__(self) -> AsyncIterator[Event]:
        # One for all: who breaks out, or is cancelled, and iterates again goes on where they were.
        return self._events

    async def next_batch(self) -> Sequence[Event] | None:
        """The events that have come since the last batch; waits for one, None after the last."""
        return await self._outbox.take()
