"""Record the events of one run: number them, collect them for its result, and queue them.

The caller of a run gets all events through the queue in this module.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

import msgspec

from geminids.events.accumulator import Accumulator
from geminids.events.cost import Cost
from geminids.events.model import AnyEvent, Event, Finished, Level, Started, TokensUsed, Turn, Usage
from geminids.events.numbering import EventNumbers
from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.ids import new_run_id
from geminids.log import get_logger
from geminids.outcome import Failure
from geminids.redact import Redactor
from geminids.run.accounting.cost import sum_of
from geminids.run.attempt import AttemptFacts
from geminids.run.result import Result

if TYPE_CHECKING:
    import anyio

__all__ = ["EventQueue", "RunRecorder"]

_log = get_logger("run")


class RunRecorder(EventNumbers):
    """Collects all events of a run for its result, and queues them for the caller.

    The code that creates an event gets the event's number from `next`, masks secrets with
    `redactor`, and then passes the event to `emit`. `emit` does not set the number: to set it,
    `emit` would have to copy each event. `redactor` knows the secrets of the current attempt.
    """

    def __init__(self, run_id: str | None = None) -> None:
        super().__init__()
        self.run_id = run_id or new_run_id()
        self.redactor = Redactor()
        self.observer: Callable[[Sequence[Event]], None] | None = None
        """A function that is called with each batch of emitted events, or None."""
        self._accumulator = Accumulator()
        self._queue = EventQueue()

    def emit(self, events: Sequence[Event], size: int = 0) -> None:
        """Add events to the run.

        `size` is the number of bytes of CLI output from which the events were created. It is 0 if
        the events were not created from CLI output.
        """
        if self.observer is not None:
            self.observer(events)
        self._accumulator.add(events)
        self._queue.put(events, size)

    def emit_notice(self, level: Level, code: str, message: str, *, wait_s: float | None = None) -> None:
        """Create a notice, with secrets masked, and emit it.

        `wait_s` is the number of seconds that the run now waits, if the notice is about a wait;
        otherwise None.
        """
        self.emit([self.notice(level, code, self.redact(message), wait_s=wait_s)])

    def relay(self, batch: Sequence[Event]) -> None:
        """Queue events that another recorder has numbered, for example in another process.

        The events are not collected for the result, because the other recorder builds the result.
        """
        self._queue.put(batch)

    def redact(self, text: str) -> str:
        """Return the text with every known secret masked."""
        return self.redactor.text(text)

    async def take(self) -> Sequence[Event] | None:
        """Wait for the next batch of events and return it. Return None after the last event."""
        return await self._queue.take()

    def close(self) -> None:
        """Close the queue of events. Call this when no more events will be emitted."""
        self._queue.close()

    # What the emitted events contain so far.

    @property
    def text(self) -> str:
        """The whole text that the model wrote in the last attempt."""
        return self._accumulator.text

    @property
    def answer(self) -> str:
        """The text that the model wrote in the last attempt after its last tool call."""
        return self._accumulator.answer

    @property
    def tool_calls(self) -> int:
        """The number of tool calls in all attempts."""
        return self._accumulator.tool_calls

    @property
    def requests(self) -> list[TokensUsed]:
        """The requests of the last attempt, with their token counts."""
        return self._accumulator.tokens

    def turns(self) -> tuple[Turn, ...]:
        """Return the conversation of the last attempt, with secrets masked."""
        return self._accumulator.turns(self.redact)

    def accumulate(self, events: Sequence[Event]) -> None:
        """Collect events for the result, without queueing them.

        This is for recorded runs: the code that reads a recording passes the events to the caller
        itself.
        """
        self._accumulator.add(events)

    # Create the first and the last event.

    def make_started(self, *, at: int | None = None, **fields: Any) -> Started:
        """Create the first event of an attempt.

        `at` is its time in Unix milliseconds (None means now). `fields` are the fields that only
        `Started` has.
        """
        return Started(
            at=int(time.time() * 1000) if at is None else at,
            seq=self.next(),
            attempt=self.attempt,
            turn=self.turn,
            run_id=self.run_id,
            **fields,
        )

    def make_finished(
        self,
        ending: Ending,
        attempts: Sequence[AttemptFacts],
        *,
        began: float,
        clear_session: bool = False,
        value: Any = None,
    ) -> Finished:
        """Create the last event of the run.

        `attempts` are the facts about the attempts that were started. `began` is the start time of
        the run (monotonic). `clear_session` is True if the caller of the run should forget the id
        of the session to resume, because the run used a new session. `value` is the validated
        answer as plain JSON values, or None.
        """
        last = attempts[-1] if attempts else AttemptFacts(ending=ending)
        usage = sum_of([attempt.usage for attempt in attempts]) if len(attempts) > 1 else last.usage
        recorded = self._accumulator
        return Finished(
            at=int(time.time() * 1000),
            seq=self.next(),
            attempt=self.attempt,
            turn=self.turn,
            run_id=self.run_id,
            outcome=ending.outcome,
            failure=ending.failure or _failure_of_limit(ending, last.session_id),
            reason=ending.reason,
            # Redact again: a secret that is split by a tool call is complete only here.
            text=self.redact(recorded.text),
            answer=self.redact(recorded.answer),
            session_id=last.session_id,
            clear_session=ending.clear_session or clear_session,
            usage=usage,
            attempts=recorded.attempts,
            exit_code=last.exit_code,
            duration_ms=int((time.monotonic() - began) * 1000),
            ended=tuple(process for attempt in attempts for process in attempt.ended),
            complete=last.complete,
            decisions=tuple(decision for attempt in attempts for decision in attempt.decisions),
            value=value,
            stall=last.stall if ending.outcome == "timed_out" else None,
            cost=self._cost(attempts, usage),
            finish_reason=last.finish_reason,
            discarded=tuple(recorded.discarded),
        )

    def _cost(self, attempts: Sequence[AttemptFacts], usage: Usage | None) -> Cost | None:
        """Return the cost of all attempts, or None if it cannot be computed."""
        prices = next((attempt.prices for attempt in reversed(attempts) if attempt.prices is not None), None)
        if prices is None:
            return None
        try:
            return prices.total([*self._accumulator.earlier, *self._accumulator.tokens], usage)
        except Exception as error:
            # An error in the computation of the cost must not prevent the result.
            _log.error("cannot compute the cost of the run", error=error)
            return None

    def finish(self, finished: Finished) -> Result:
        """Emit the last event, close the queue, and return the result of the run."""
        result = self.result_of(finished)
        self._queue.put([finished])
        self._queue.close()
        return result

    def result_of(self, finished: Finished) -> Result:
        """Build the result of the run from its last event and the events collected before it."""
        # The turns refer to offsets in `finished.text`. Another process may have masked secrets in
        # `finished.text`, so use exactly that text, not our own copy.
        text = self._accumulator.text
        redact = self.redact

        def redacted(part: str) -> str:
            return finished.text if part == text else redact(part)

        conversation = self._accumulator.conversation(redacted) if self._accumulator.attempts else b""
        return Result.of(finished, conversation)


_LIMIT = 4 * 1024 * 1024
# Count at least this many bytes for each event: even an event that comes from one byte of output
# needs about 200 bytes of memory.
_LEAST = 100


class EventQueue:
    """Passes batches of events from the run to the caller. `put` never waits.

    A slow caller must not slow down the CLI. So when more than 4 MB wait to be read, further
    batches are written to an unnamed temporary file. The queue passes whole batches, because
    passing single events through an anyio memory stream is ten times slower.
    """

    def __init__(self) -> None:
        # The oldest batches are in `_batches`, newer ones are in `_file`, and the newest, if they
        # could not be written to the file, are in `_overflow`.
        self._batches: deque[tuple[Sequence[Event], int]] = deque()
        self._size = 0
        self._file = _OverflowFile()
        self._overflow: deque[Sequence[Event]] = deque()
        self._closed = False
        self._changed: anyio.Event | None = None

    def put(self, batch: Sequence[Event], size: int = 0) -> None:
        """Add a batch of events.

        `size` is the number of bytes of CLI output from which the events were created.
        """
        if not batch:
            return
        size = max(size, _LEAST * len(batch))
        if not (self._file or self._overflow) and (not self._batches or self._size + size <= _LIMIT):
            self._batches.append((batch, size))
            self._size += size
        else:
            self._put_overflow(batch)
        self._wake()

    def close(self) -> None:
        """Close the queue. Call this when no more batches will be added."""
        self._closed = True
        self._wake()

    async def take(self) -> Sequence[Event] | None:
        """Wait for the next batch and return it. Return None after the last batch."""
        import anyio

        while True:
            if self._batches:
                batch, size = self._batches.popleft()
                self._size -= size
                return batch
            if self._file:
                return self._file.take()
            if self._overflow:
                return self._overflow.popleft()
            if self._closed:
                self._file.close()
                return None
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()

    def _put_overflow(self, batch: Sequence[Event]) -> None:
        try:
            if not self._overflow:
                self._file.put(batch)
                return
        except OSError as error:
            # If the disk is full, keep the events in memory, so that none is lost.
            _log.warning("cannot write unread events to a file; keeping them in memory", error=error)
        self._overflow.append(batch)

    def _wake(self) -> None:
        waiting, self._changed = self._changed, None
        if waiting is not None:
            waiting.set()


class _OverflowFile:
    """A queue of batches in a temporary file without a name. No other process can open it."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._sizes: deque[int] = deque()
        self._begin = self._end = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[AnyEvent])

    def __len__(self) -> int:
        return len(self._sizes)

    def put(self, batch: Sequence[Event]) -> None:
        """Append a batch of events.

        Raises `OSError` if the batch cannot be written, for example because the disk is full.
        """
        if self._file is None:
            import tempfile  # imported late: most consumers are fast, so that no file is needed

            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed in close)
        data = self._encoder.encode(batch)
        written = 0
        while written < len(data):
            written += os.pwrite(self._file.fileno(), memoryview(data)[written:], self._end + written)
        self._end += len(data)
        self._sizes.append(len(data))

    def take(self) -> Sequence[Event]:
        """Read the first batch and remove it from the queue.

        When the queue becomes empty, the file is truncated to free disk space.
        """
        assert self._file is not None
        size = self._sizes.popleft()
        batch: Sequence[Event] = self._decoder.decode(self._read(size))
        self._begin += size
        if not self._sizes:
            self._begin = self._end = 0
            self._file.truncate(0)
        return batch

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        # Close the file here too, because a caller may stop before it has read the whole queue.
        self.close()

    def _read(self, size: int) -> bytes:
        assert self._file is not None
        parts = []
        at = self._begin
        while at < self._begin + size:
            part = os.pread(self._file.fileno(), self._begin + size - at, at)
            if not part:
                raise OSError("the temporary file with unread events is shorter than expected")
            parts.append(part)
            at += len(part)
        return b"".join(parts)


def _failure_of_limit(ending: Ending, session_id: str | None) -> Failure | None:
    """Return the failure of a run that the caller, or a limit of the caller, ended.

    Return None if the run succeeded. `session_id` is the session of the run, which its hint
    mentions; None if the run has no session.
    """
    if ending.outcome == "success" or ending.outcome == "failed":
        return None
    message = ending.reason or ending.outcome
    hint = hint_for(ending.outcome)
    if session_id is not None:
        hint += " To continue where it stopped, use `resume`."
    return Failure(kind=ending.outcome, message=message, retryable=False, hint=hint)
