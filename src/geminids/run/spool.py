"""Batches of events on disk, first in, first out: where they wait for a consumer that is slow."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import IO

import msgspec

from geminids.events.model import AnyEvent, Event

__all__ = ["Spool"]


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
