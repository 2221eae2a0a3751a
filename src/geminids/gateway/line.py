"""One connection to a server, as bytes: what has come is read at once, what is too much makes the server wait."""

from __future__ import annotations

import asyncio

__all__ = ["Line"]

# More than this is not taken ahead of whoever reads.
_MOST_AHEAD = 256 * 1024
# A larger body is handed to the socket in slices, so that it is never copied whole.
_SLICE = 256 * 1024


class Line(asyncio.Protocol):
    """A protocol of asyncio: its streams cannot tell a byte that nobody asked for, and cost more for each piece."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._got: list[bytes] = []
        self._size = 0
        self._paused = False
        self._ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def alive(self) -> bool:
        """Whether a request may be sent here: the server is there, and has said nothing unasked."""
        return not (self._ended or self._got or self.transport.is_closing())

    async def read(self) -> bytes:
        """All that has come, as soon as there is something; b"" at the end. Raises `OSError`."""
        while not self._got:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        got = self._got[0] if len(self._got) == 1 else b"".join(self._got)
        self._got.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        return got

    async def write(self, data: bytes) -> None:
        """Send, as fast as the server takes it. Raises `OSError`."""
        view = memoryview(data)
        for at in range(0, len(view), _SLICE):
            if self._ended or self.transport.is_closing():
                raise self._error or ConnectionResetError("the other side has closed the connection")
            self.transport.write(view[at : at + _SLICE])
            await self._writable.wait()

    def drop(self) -> None:
        """Close at once: what is under way is lost, and the other side hears it."""
        self.transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._got.append(data)
        self._size += len(data)
        if self._size > _MOST_AHEAD and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._error = error
        self._writable.set()
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
