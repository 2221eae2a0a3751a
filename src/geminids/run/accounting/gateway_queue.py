"""Pass messages from the gateway's thread to the event loop of a run.

The gateway is the local server to which the CLI sends its requests.
"""

from __future__ import annotations

import os
import threading

from geminids.gateway.messages import GatewayMessage

__all__ = ["GatewayQueue"]


class GatewayQueue:
    """Passes messages from the gateway's thread to the run's event loop.

    Any thread may call `put`. `wait` works in asyncio and in trio. Messages that arrive before the
    event loop starts, or after it has ended, are kept until `take` is called.
    """

    def __init__(self) -> None:
        self._messages: list[GatewayMessage] = []
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None

    def put(self, message: GatewayMessage) -> None:
        with self._lock:
            self._messages.append(message)
        self.wake()

    def wake(self) -> None:
        """Make `wait` return, even if there is no message."""
        with self._lock:
            if self._pipe is not None:
                try:
                    os.write(self._pipe[1], b"\0")
                except BlockingIOError:
                    pass  # the pipe is full, so `wait` returns anyway

    def take(self) -> list[GatewayMessage]:
        """Return and remove all messages that have arrived since the last call."""
        with self._lock:
            messages, self._messages = self._messages, []
            return messages

    async def wait(self) -> None:
        """Wait until there is a message, or until `wake` is called."""
        import anyio

        with self._lock:
            if self._messages:
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
        """Close the pipe that makes `wait` return. Messages that arrive later are kept, and `take`
        returns them.
        """
        with self._lock:
            pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            os.close(end)
