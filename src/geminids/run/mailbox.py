"""A box for what another thread has to tell: put from any thread, taken in the run's own event loop."""

from __future__ import annotations

import os
import threading
from typing import Generic, TypeVar

__all__ = ["Mailbox"]

_T = TypeVar("_T")


class Mailbox(Generic[_T]):
    """Nothing is lost before the loop runs, nor after it has ended; asyncio and trio are woken alike, by a pipe."""

    def __init__(self) -> None:
        self._letters: list[_T] = []
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None

    def put(self, letter: _T) -> None:
        with self._lock:
            self._letters.append(letter)
        self.wake()

    def wake(self) -> None:
        """Let `wait` return, whether there is something to take or not."""
        with self._lock:
            if self._pipe is not None:
                try:
                    os.write(self._pipe[1], b"\0")
                except BlockingIOError:
                    pass  # the pipe is full of calls already

    def take(self) -> list[_T]:
        """All that has come since."""
        with self._lock:
            letters, self._letters = self._letters, []
            return letters

    async def wait(self) -> None:
        """Wait until there is something to take, or `wake` was called."""
        import anyio

        with self._lock:
            if self._letters:
                return
            if self._pipe is None:
                self._pipe = os.pipe()
                for end in self._pipe:
                    os.set_blocking(end, False)
            end = self._pipe[0]
        await anyio.wait_readable(end)
        with self._lock:
            try:
                os.read(end, 4096)
            except BlockingIOError:
                pass

    def close(self) -> None:
        """What is put from now on is kept, and nobody is woken for it."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            os.close(end)
