"""What the owner tells of a run becomes its events and its result; where it tells no end, one is made."""

from __future__ import annotations

from collections.abc import Iterable

from geminids.events.model import Event, Finished, Started
from geminids.outcome import Failure
from geminids.run.recorder import Outbox, RunRecorder, Traces, finished_of
from geminids.run.result import Result
from geminids.run.warm.owner_wire import Cold, Told
from geminids.wire.endings import Ending

__all__ = ["OWNER_GONE", "Account"]

_OWNER_GONE = "the pool's owner ended in the middle of the run"
OWNER_GONE = Ending(
    "failed",
    _OWNER_GONE,
    Failure(
        kind="crashed",
        message=_OWNER_GONE,
        retryable=True,
        hint="Run it again: a fresh owner is started.",
    ),
)


class Account:
    """One run as it is told. `cold` says why it was never begun, and can be begun elsewhere."""

    def __init__(self, outbox: Outbox) -> None:
        self._recorder = RunRecorder(outbox)
        self._before: list[Event] = []
        """What came before the run had begun: forgotten where it begins elsewhere."""
        self.started: Started | None = None
        self.cold: str | None = None
        self.result: Result | None = None

    @property
    def over(self) -> bool:
        return self.result is not None or self.cold is not None

    def take(self, told: Iterable[Told], *, stopped: bool) -> list[Event]:
        """Take what was told; gives the events in it. `stopped` where the run was asked to end."""
        events: list[Event] = []
        for one in told:
            if isinstance(one, Cold):
                self.cold = one.why
            elif isinstance(one, Started):
                self.started = one
            elif (
                isinstance(one, Finished) and self.started is None and one.outcome == "failed" and not stopped
            ):
                # No session could be opened, and no prompt was sent.
                self.cold = one.reason or "no session could be opened"
            if self.cold is not None:
                break
            if isinstance(one, Event):
                events.append(one)
        if events:
            self._put(events)
        return events

    def _put(self, events: list[Event]) -> None:
        last, ledger = events[-1], self._recorder.ledger
        ledger.seq, ledger.turn, ledger.attempt = last.seq + 1, last.turn, last.attempt
        if self.started is None and not isinstance(last, Finished):
            self._before += events
            return
        events, self._before = [*self._before, *events], []
        self._recorder.put(events)
        if isinstance(last, Finished):
            # The owner has masked what is a secret only as a whole.
            fold = self._recorder.fold
            text = fold.text
            conversation = fold.conversation(lambda one: last.text if one == text else one)
            self.result = Result.of(last, conversation)

    def finish(self, ending: Ending, began: float) -> None:
        """The end that the owner has not told."""
        known, recorder = self.started, self._recorder
        if known is not None:
            recorder.run_id = known.run_id
        finished, self.result = finished_of(
            recorder,
            ending,
            Traces(session_id=known.session_id) if known is not None else None,
            None,
            began=began,
            conversation=recorder.fold.conversation(),
        )
        recorder.outbox.put([*self._before, finished])
