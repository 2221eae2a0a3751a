"""The handle that runs, chat turns and remote runs share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from geminids.errors import GeminidsError
from geminids.events.model import Event
from geminids.run.recorder import RunRecorder
from geminids.run.result import Result

__all__ = ["BY_CALLER", "EventStream"]

BY_CALLER = "interrupted by the caller"


class EventStream:
    """Iterate it for the events; `result` is there afterwards. `stop` and leaving its block end the run."""

    _name = "run"

    def __init__(self, recorder: RunRecorder) -> None:
        self.id = recorder.run_id
        self._recorder = recorder
        self._events = _Events(recorder)
        self._result: Result | None = None

    def __aiter__(self) -> AsyncIterator[Event]:
        # One iterator for all: a second loop goes on where the first one stopped.
        return self._events

    async def next_batch(self) -> Sequence[Event] | None:
        """The events since the last batch; waits for the first one, None after the last."""
        return await self._recorder.take()

    @property
    def result(self) -> Result:
        """How it ended; raises `GeminidsError` while it goes on."""
        if self._result is None:
            hint = "Read its events to the end, or leave its block."
            raise GeminidsError(f"the {self._name} is not over yet", hint=hint)
        return self._result

    def stop(self, reason: str = BY_CALLER) -> None:
        """Ask for the end; a second call skips the grace period. The last event says when it is over."""
        raise NotImplementedError


class _Events:
    """The events one by one. Not a generator: a cancelled wait would end it, and the rest would be lost."""

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder
        self._batch: Iterator[Event] = iter(())

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> Event:
        while True:
            for event in self._batch:
                return event
            batch = await self._recorder.take()
            if batch is None:
                raise StopAsyncIteration
            self._batch = iter(batch)
