"""Turn the owner's messages about a run into events and a result; make a result if the owner sends none."""

from __future__ import annotations

from collections.abc import Iterable

from geminids.events.model import Event, Finished, Started
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.outcome import Failure
from geminids.run.attempt import AttemptFacts
from geminids.run.recorder import RunRecorder
from geminids.run.result import Result
from geminids.warm.owner.owner_wire import Cold, Told

__all__ = ["OWNER_GONE", "Account"]

_OWNER_GONE = "the pool's owner ended in the middle of the run"
OWNER_GONE = Ending(
    "failed",
    _OWNER_GONE,
    Failure(
        kind="crashed",
        message=_OWNER_GONE,
        retryable=True,
        hint="Run it again: a new owner process is started.",
    ),
)


class Account:
    """One run, as the owner reports it. `cold`: why the owner did not start it; it can run elsewhere."""

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder
        self._before: list[Event] = []
        """Events from before the start; dropped if the run starts elsewhere."""
        self.started: Started | None = None
        self.cold: str | None = None
        self.result: Result | None = None

    @property
    def over(self) -> bool:
        return self.result is not None or self.cold is not None

    def take(self, told: Iterable[Told], *, stopped: bool) -> list[Event]:
        """Process a message and return its events. `stopped`: the run was asked to end."""
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
        last, recorder = events[-1], self._recorder
        recorder.seq, recorder.turn, recorder.attempt = last.seq + 1, last.turn, last.attempt
        if self.started is None and not isinstance(last, Finished):
            self._before += events
            return
        events, self._before = [*self._before, *events], []
        recorder.emit(events)
        if isinstance(last, Finished):
            self.result = recorder.result_of(last)

    def finish(self, ending: Ending, began: float) -> None:
        """Make the result that the owner did not send."""
        known, recorder = self.started, self._recorder
        if known is not None:
            recorder.run_id = known.run_id
        facts = [] if known is None else [AttemptFacts(ending=ending, session_id=known.session_id)]
        finished = recorder.make_finished(ending, facts, began=began)
        recorder.relay(self._before)
        self.result = recorder.finish(finished)
