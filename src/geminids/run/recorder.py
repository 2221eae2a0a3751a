"""Record the events of one run: number, redact, accumulate and queue them. Nothing else writes events."""

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
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.ids import new_run_id
from geminids.log import get_logger
from geminids.redact import Redactor
from geminids.run.accounting.cost import sum_of
from geminids.run.attempt import AttemptFacts
from geminids.run.result import Result

if TYPE_CHECKING:
    import anyio

__all__ = ["EventQueue", "RunRecorder"]

_log = get_logger("run")


class RunRecorder(EventNumbers):
    """The only writer of a run's events.

    Producers take numbers and the redactor from it, and hand their events to `emit`: to number or redact events there
    would copy each of them. `redactor` masks the secrets of the attempt that runs now.
    """

    def __init__(self, run_id: str | None = None) -> None:
        super().__init__()
        self.run_id = run_id or new_run_id()
        self.redactor = Redactor()
        self.observer: Callable[[Sequence[Event]], None] | None = None
        """Called with each batch that is emitted: the stall watch of the attempt."""
        self._accumulator = Accumulator()
        self._queue = EventQueue()

    def emit(self, events: Sequence[Event], size: int = 0) -> None:
        """Emit events; `size` is how many bytes of output they stand for."""
        if self.observer is not None:
            self.observer(events)
        self._accumulator.add(events)
        self._queue.put(events, size)

    def emit_notice(self, level: Level, code: str, message: str, *, wait_s: float | None = None) -> None:
        """Make a notice and emit it."""
        self.emit([self.notice(level, code, self.redact(message), wait_s=wait_s)])

    def relay(self, batch: Sequence[Event]) -> None:
        """Queue events that another recorder has numbered and accumulated."""
        self._queue.put(batch)

    def redact(self, text: str) -> str:
        """The text with every known secret masked."""
        return self.redactor.text(text)

    async def take(self) -> Sequence[Event] | None:
        """The next batch for the consumer; None after the last."""
        return await self._queue.take()

    def close(self) -> None:
        """No more events will come."""
        self._queue.close()

    # What has been recorded so far.

    @property
    def text(self) -> str:
        """All text of the last attempt."""
        return self._accumulator.text

    @property
    def answer(self) -> str:
        """The text of the last attempt after its last tool."""
        return self._accumulator.answer

    @property
    def tool_calls(self) -> int:
        """How many tools all attempts have called."""
        return self._accumulator.tool_calls

    @property
    def requests(self) -> list[TokensUsed]:
        """The requests of the last attempt."""
        return self._accumulator.tokens

    def turns(self) -> tuple[Turn, ...]:
        """The conversation of the last attempt."""
        return self._accumulator.turns(self.redact)

    def accumulate(self, events: Sequence[Event]) -> None:
        """Take events into account without queueing them: whoever reads a recording passes them on itself."""
        self._accumulator.add(events)

    # Its first event and its last.

    def make_started(self, *, at: int | None = None, **fields: Any) -> Started:
        """Make the first event of an attempt; `fields` are those that are not the same for every event."""
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
        """Make the last event. `attempts` are those that were started; `began` is a monotonic time."""
        last = attempts[-1] if attempts else AttemptFacts(ending=ending)
        usage = sum_of([one.usage for one in attempts]) if len(attempts) > 1 else last.usage
        spent = self._accumulator
        return Finished(
            at=int(time.time() * 1000),
            seq=self.next(),
            attempt=self.attempt,
            turn=self.turn,
            run_id=self.run_id,
            outcome=ending.outcome,
            failure=ending.failure,
            reason=ending.reason,
            # Redact once more: a secret with one half before a tool call and one behind it is complete only here.
            text=self.redact(spent.text),
            answer=self.redact(spent.answer),
            session_id=last.session_id,
            clear_session=ending.clear_session or clear_session,
            usage=usage,
            attempts=spent.attempts,
            exit_code=last.exit_code,
            duration_ms=int((time.monotonic() - began) * 1000),
            ended=tuple(process for one in attempts for process in one.ended),
            complete=last.complete,
            decisions=tuple(decision for one in attempts for decision in one.decisions),
            value=value,
            stall=last.stall if ending.outcome == "timed_out" else None,
            cost=self._cost(attempts, usage),
            finish_reason=last.finish_reason,
            discarded=tuple(spent.discarded),
        )

    def _cost(self, attempts: Sequence[AttemptFacts], usage: Usage | None) -> Cost | None:
        """What all attempts cost; None if none of them sent anything."""
        prices = next((one.prices for one in reversed(attempts) if one.prices is not None), None)
        if prices is None:
            return None
        try:
            return prices.total([*self._accumulator.earlier, *self._accumulator.tokens], usage)
        except Exception as error:
            # A mistake of ours about prices must not cost the caller the ending.
            _log.error("the cost of the run cannot be computed", error=error)
            return None

    def finish(self, finished: Finished) -> Result:
        """Emit the last event and close the queue; return the result."""
        result = self.result_of(finished)
        self._queue.put([finished])
        self._queue.close()
        return result

    def result_of(self, finished: Finished) -> Result:
        """The result that belongs to a last event, with the conversation of all events before it."""
        # `finished.text` may be redacted by another process: turns must begin at places in that text.
        text = self._accumulator.text
        redact = self.redact

        def redacted(part: str) -> str:
            return finished.text if part == text else redact(part)

        conversation = self._accumulator.conversation(redacted) if self._accumulator.attempts else b""
        return Result.of(finished, conversation)


_LIMIT = 4 * 1024 * 1024
# Count at least this many bytes per event: a line of one byte becomes an object of about 200.
_LEAST = 100


class EventQueue:
    """Passes batches of events from the run to its consumer. `put` never waits.

    A slow consumer must not slow the CLI down. More than 4 MB go to a file without a name. Whole batches cross from
    one task to the other: an anyio memory stream passes ten times fewer events.
    """

    def __init__(self) -> None:
        # In the order of arrival: in memory, in the file, and what the file did not take.
        self._batches: deque[tuple[Sequence[Event], int]] = deque()
        self._size = 0
        self._file = _OverflowFile()
        self._overflow: deque[Sequence[Event]] = deque()
        self._closed = False
        self._changed: anyio.Event | None = None

    def put(self, batch: Sequence[Event], size: int = 0) -> None:
        """Put a batch in; `size` is how many bytes of output it stands for."""
        if not batch:
            return
        size = max(size, _LEAST * len(batch))
        if not (self._file or self._overflow) and (not self._batches or self._size + size <= _LIMIT):
            self._batches.append((batch, size))
            self._size += size
        else:
            self._put_aside(batch)
        self._wake()

    def close(self) -> None:
        """No more batches will come."""
        self._closed = True
        self._wake()

    async def take(self) -> Sequence[Event] | None:
        """The next batch, or None after the last."""
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

    def _put_aside(self, batch: Sequence[Event]) -> None:
        try:
            if not self._overflow:
                self._file.put(batch)
                return
        except OSError as error:
            # A full disk costs memory, not events.
            _log.warning("events that nobody has read yet stay in memory", error=error)
        self._overflow.append(batch)

    def _wake(self) -> None:
        waiting, self._changed = self._changed, None
        if waiting is not None:
            waiting.set()


class _OverflowFile:
    """A file without a name, which nobody else can open and which is gone with this process."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._sizes: deque[int] = deque()
        self._begin = self._end = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[AnyEvent])

    def __len__(self) -> int:
        return len(self._sizes)

    def put(self, batch: Sequence[Event]) -> None:
        """Write a batch behind the others; raises OSError where the disk is full."""
        if self._file is None:
            import tempfile  # imported late: most consumers are fast

            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed in close)
        data = self._encoder.encode(batch)
        written = 0
        while written < len(data):
            written += os.pwrite(self._file.fileno(), memoryview(data)[written:], self._end + written)
        self._end += len(data)
        self._sizes.append(len(data))

    def take(self) -> Sequence[Event]:
        """Read the first batch; an empty file gives its space back."""
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
        # A consumer that leaves early takes no further batch, and nobody else knows of the file.
        self.close()

    def _read(self, size: int) -> bytes:
        assert self._file is not None
        parts = []
        at = self._begin
        while at < self._begin + size:
            part = os.pread(self._file.fileno(), self._begin + size - at, at)
            if not part:
                raise OSError("the overflow file of events ended early")
            parts.append(part)
            at += len(part)
        return b"".join(parts)
