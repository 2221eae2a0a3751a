"""The events of one run: numbered, accumulated, and queued for the consumer."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import msgspec

from geminids.events.fold import Fold
from geminids.events.ledger import Ledger
from geminids.events.model import (
    AnyEvent,
    Decision,
    EndedProcess,
    Event,
    Finished,
    Level,
    Notice,
    Started,
    Usage,
)
from geminids.ids import new_run_id
from geminids.launch.workspace import Found
from geminids.log import get_logger
from geminids.run.cost import Prices
from geminids.run.result import Result
from geminids.wire.endings import Ending

if TYPE_CHECKING:
    import anyio

__all__ = [
    "EventStream",
    "Events",
    "Outbox",
    "RunRecorder",
    "Spool",
    "Traces",
    "finished_of",
    "without_power",
]

_log = get_logger("run")


class Spool:
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
                raise OSError("the spool of events ended early")
            parts.append(part)
            at += len(part)
        return b"".join(parts)


_LIMIT = 4 * 1024 * 1024
# A line of one byte makes an event of some two hundred.
_LEAST = 100


class Outbox:
    """A lane puts batches in and never waits; a consumer takes them out.

    The CLI must not feel a slow consumer: it calls process.exit without waiting for its stdout, so that what does
    not fit into the pipe at that moment, its result included, is lost. Whole batches cross from one task to the
    other: an anyio memory stream passes ten times fewer events.
    """

    def __init__(self) -> None:
        # In the order of arrival: what is in memory, what is on disk, and what the disk did not take.
        self._batches: deque[tuple[Sequence[Event], int]] = deque()
        self._size = 0
        self._spool = Spool()
        self._overflow: deque[Sequence[Event]] = deque()
        self._closed = False
        self._changed: anyio.Event | None = None

    def put(self, batch: Sequence[Event], size: int = 0) -> None:
        """Put a batch in; `size` is how many bytes of output it stands for."""
        if not batch:
            return
        size = max(size, _LEAST * len(batch))
        if not (self._spool or self._overflow) and (not self._batches or self._size + size <= _LIMIT):
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
            if self._spool:
                return self._spool.take()
            if self._overflow:
                return self._overflow.popleft()
            if self._closed:
                self._spool.close()
                return None
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()

    def _put_aside(self, batch: Sequence[Event]) -> None:
        try:
            if not self._overflow:
                self._spool.put(batch)
                return
        except OSError as error:
            # A full disk costs memory, not events.
            _log.warning("events that nobody has read yet stay in memory", error=error)
        self._overflow.append(batch)

    def _wake(self) -> None:
        waiting, self._changed = self._changed, None
        if waiting is not None:
            waiting.set()


class Events:
    """The events one by one. No generator: a cancelled wait would end it, and the rest would be lost."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._batch: Iterator[Event] = iter(())

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        while True:
            for event in self._batch:
                return event
            batch = await self._outbox.take()
            if batch is None:
                raise StopAsyncIteration
            self._batch = iter(batch)


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


_CODE = "workspace"


def without_power(found: Sequence[Found], ledger: Ledger) -> Iterator[Notice]:
    """One sentence for people, then each thing by name.

    An `.env` that does not speak of Gemini is no news to anybody: then there is no such sentence.
    """
    if any(one.kind != "env file" or one.name for one in found):
        kinds = Counter(one.kind for one in found)
        counted = ", ".join(_counted(kind, count) for kind, count in kinds.items())
        text = f"this folder is not trusted, and so without power: {counted} (trust_workspace gives it)"
        yield ledger.notice("warning", _CODE, text)
    for one in found:
        yield ledger.notice("info", _CODE, f"{one} has no power in this run")


def _counted(kind: str, count: int) -> str:
    if count == 1:
        return f"1 {kind}"
    return f"{count} {kind.removesuffix('y')}ies" if kind.endswith("y") else f"{count} {kind}s"
