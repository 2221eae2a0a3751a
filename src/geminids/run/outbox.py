"""Batches of events between a lane and its consumer, bounded by the bytes that they came from."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from geminids.events.model import Event

if TYPE_CHECKING:
    import anyio

__all__ = ["Outbox"]

_MEGABYTE = 1024 * 1024
_LIMIT = _MEGABYTE
_LEAST = 100
# A child that is being ended must not wait for its reader; one that never stops writing must not take it all.
_LIMIT_AT_THE_END = 32 * _MEGABYTE


class Outbox:
    """A lane puts batches in and waits while it is full; a consumer takes them out.

    Whole batches cross from one task to the other: an anyio memory stream passes ten times fewer events.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[Sequence[Event], int]] = deque()
        self._size = 0
        self._limit = _LIMIT
        self._closed = False
        self._changed: anyio.Event | None = None
        self._taken: anyio.Event | None = None

    @property
    def full(self) -> bool:
        return self._size > self._limit

    def put(self, batch: Sequence[Event], size: int = 0) -> None:
        """Put a batch in; `size` is how many bytes of output it stands for."""
        if batch:
            # A line of one byte makes an event of some two hundred.
            size = max(size, _LEAST * len(batch))
            self._batches.append((batch, size))
            self._size += size
            self._wake_consumers()

    def close(self) -> None:
        """No more batches will come."""
        self._closed = True
        self._wake_consumers()

    def lift(self) -> None:
        """The child has ended or is being ended: what it still says is to be heard now."""
        self._limit = _LIMIT_AT_THE_END
        self._wake_lane()

    async def room(self) -> None:
        """Wait until the consumer has caught up. The readers of both pipes may wait at once."""
        import anyio

        while self.full:
            if self._taken is None:
                self._taken = anyio.Event()
            await self._taken.wait()

    async def take(self) -> Sequence[Event] | None:
        """The next batch, or None after the last."""
        import anyio

        while not self._batches:
            if self._closed:
                return None
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()
        batch, size = self._batches.popleft()
        self._size -= size
        if not self.full:
            self._wake_lane()
        return batch

    def _wake_consumers(self) -> None:
        waiting, self._changed = self._changed, None
        if waiting is not None:
            waiting.set()

    def _wake_lane(self) -> None:
        waiting, self._taken = self._taken, None
        if waiting is not None:
            waiting.set()
