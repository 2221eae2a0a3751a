"""Convert the messages that the owner daemon sends about a run into events and a result.

The owner is the daemon that serves the run. If it sends no result, this module builds one.
"""

from __future__ import annotations

from collections.abc import Iterable

from geminids.events.model import Event, Finished, Started
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.outcome import Failure
from geminids.run.attempt import AttemptFacts
from geminids.run.recorder import RunRecorder
from geminids.run.result import Result
from geminids.warm.owner.protocol import NotServed, OwnerMessage

__all__ = ["OWNER_GONE", "Account"]

_OWNER_GONE = "the background process for warm runs ended in the middle of the run"
OWNER_GONE = Ending(
    "failed",
    _OWNER_GONE,
    Failure(
        kind="crashed",
        message=_OWNER_GONE,
        retryable=True,
        hint="Start the run again; a new background process is then started.",
    ),
)


class Account:
    """The events and the result of one run, as the owner daemon reports them.

    The owner is the daemon that serves the run. If the daemon did not start the run, `cold` says
    why, and this process can start the run itself. Otherwise `cold` is None.
    """

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder
        self._before: list[Event] = []
        """Events that arrived before `Started`. They are dropped if the daemon does not start the
        run.
        """
        self.started: Started | None = None
        self.cold: str | None = None
        self.result: Result | None = None

    @property
    def over(self) -> bool:
        return self.result is not None or self.cold is not None

    def take(self, messages: Iterable[OwnerMessage], *, stopped: bool) -> list[Event]:
        """Process messages of the owner daemon, and return their events.

        `stopped` is True if we have asked the owner to stop the run.
        """
        events: list[Event] = []
        for message in messages:
            if isinstance(message, NotServed):
                self.cold = message.why
            elif isinstance(message, Started):
                self.started = message
            elif (
                isinstance(message, Finished)
                and self.started is None
                and message.outcome == "failed"
                and not stopped
            ):
                # The owner daemon could not open a session, and the prompt was not sent.
                self.cold = message.reason or "no session could be opened"
            if self.cold is not None:
                break
            if isinstance(message, Event):
                events.append(message)
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
        """Build the result of the run, because the owner daemon did not send one.

        `began` is the start time of the run (monotonic).
        """
        known, recorder = self.started, self._recorder
        if known is not None:
            recorder.run_id = known.run_id
        facts = [] if known is None else [AttemptFacts(ending=ending, session_id=known.session_id)]
        finished = recorder.make_finished(ending, facts, began=began)
        recorder.relay(self._before)
        self.result = recorder.finish(finished)
