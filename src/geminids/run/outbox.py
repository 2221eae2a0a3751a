"""Batches of events between a lane and its consumer, bounded by the bytes that they came from."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from geminids.events.model import Event

if TYPE_CHECKING:
    import anyio

__all__ = ["Outbox"]

_LIMIT = 1024 * 1024


class Outbox:
    """A lane puts batches in and waits while it is full; a consumer takes them out.

    Whole batches cross from one task to the other: an anyio memory stream passes ten times fewer events.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[Sequence[Event], int]] = deque()
        self._size = 0
        self._limited = True
        self._closed = False
        self._changed: anyio.Event | None = None
        self._taken: anyio.Event | None = None

    @property
    def full(self) -> bool:
        return self._limited and self._size > _LIMIT

    def put(self, batch: Sequence[Event], size: int = 0) -> None:
        """Put a batch in; `size` is how many bytes of output it stands for."""
        if batch:
            self._batches.append((batch, size))
            self._size += size
            _wake(self._changed)

    def close(self) -> None:
        """No more batches will come."""
        self._closed = True
        _wake(self._changed)

    def lift(self) -> None:
        """The child is gone: what its pipes still hold is bounded, so take it all."""
        self._limited = False
        _wake(self._taken)

    async def room(self) -> None:
        """Wait until the consumer has caught up."""
        import anyio

        while self.full:
            self._taken = anyio.Event()
            await self._taken.wait()

    async def take(self) -> Sequence[Event] | None:
        """The next batch, or None after the last."""
        import anyio

        while not self._batches:
            if self._closed:
                return None
            self._changed = anyio.Event()
            await self._changed.wait()
        batch, size = self._batches.popleft()
        self._size -= size
        if not self.full:
            _wake(self._taken)
        return batch


def _wake(event: anyio.Event | None) -> None:
    if event is not None:
        event.set()
