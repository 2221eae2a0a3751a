"""Batches of events between a lane and its consumer: in memory while it keeps up, on disk while it does not."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

import msgspec

from geminids.events.model import AnyEvent, Event
from geminids.log import get_logger

if TYPE_CHECKING:
    import anyio

__all__ = ["Events", "Outbox", "Spool"]

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
