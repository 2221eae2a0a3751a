"""The base class of the objects that a caller uses for a run, a turn of a chat, or a remote run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from geminids.errors import GeminidsError
from geminids.events.model import Event
from geminids.run.recorder import RunRecorder
from geminids.run.result import Result

__all__ = ["BY_CALLER", "EventStream"]

BY_CALLER = "interrupted by the caller"


class EventStream:
    """The events and the result of a run. Iterate over it to get the events, then read `result`.

    `stop` ends the run. Leaving the `async with` block ends it too.
    """

    _name = "run"

    def __init__(self, recorder: RunRecorder) -> None:
        self.id = recorder.run_id
        self._recorder = recorder
        self._events = _Events(recorder)
        self._result: Result | None = None

    def __aiter__(self) -> AsyncIterator[Event]:
        # All loops use one iterator: a second loop continues where the first one stopped.
        return self._events

    async def next_batch(self) -> Sequence[Event] | None:
        """Wait for the next batch of events and return it. Return None after the last event."""
        return await self._recorder.take()

    @property
    def result(self) -> Result:
        """The result of the run. Raises `GeminidsError` if the run has not ended yet."""
        if self._result is None:
            hint = "Read all events, or leave the `async with` block, before you read the result."
            raise GeminidsError(f"the {self._name} has not ended yet", hint=hint)
        return self._result

    def stop(self, reason: str = BY_CALLER) -> None:
        """Stop the run. A second call skips the grace period.

        The method returns at once. The run has stopped when its last event, `Finished`, is emitted.
        """
        raise NotImplementedError


class _Events:
    """Iterates over the events one by one.

    This class is not a generator: a cancellation would end a generator, and the remaining events
    would be lost.
    """

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
