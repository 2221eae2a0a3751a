"""One TCP connection, for both sides of the gateway, with back-pressure."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

__all__ = ["TcpConnection"]

# Stop reading from the socket while more than this waits for `read`.
_MAX_UNREAD = 256 * 1024
# A larger body is handed to the socket in slices, so that it is never copied whole.
_SLICE = 256 * 1024
_READ_SIZE = 256 * 1024

_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


class TcpConnection(asyncio.BufferedProtocol):
    """A connection on asyncio's transports. The streams of asyncio and anyio take an extra loop
    iteration for each piece, and cannot detect bytes that arrive when nothing reads."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        # All connections of a loop share one buffer: each read empties it before the next one.
        # Without it asyncio allocates 256 KB for each read (an mmap, an mremap and a munmap, a
        # fifth of a chunk's CPU time).
        if self._loop not in _buffers:
            # glibc maps large blocks again for each allocation, until the process has freed a
            # larger one: without this, a request of 200 KB costs 115 page faults and 0.3 ms.
            block = bytearray(2 * 1024 * 1024)
            del block
            _buffers[self._loop] = memoryview(bytearray(_READ_SIZE))
        self._buffer = _buffers[self._loop]
        self._received: list[bytes] = []
        self._size = 0
        self._paused = False
        self._ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._on_end: Callable[[], object] | None = None

    @property
    def alive(self) -> bool:
        """Whether a request may be sent: the connection is open, and the server has sent no
        unexpected bytes."""
        return not (self._ended or self._received or self.transport.is_closing())

    async def read(self) -> bytes:
        """Wait for data and return all that has arrived; b"" at the end. Raises `OSError`."""
        while not self._received:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = self._received[0] if len(self._received) == 1 else b"".join(self._received)
        self._received.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Send, and wait until the transport accepts more data. Raises `OSError`."""
        view: bytes | memoryview = data if len(data) <= _SLICE else memoryview(data)
        for at in range(0, len(view), _SLICE):
            if self._ended or self.transport.is_closing():
                raise self._error or ConnectionResetError("the other side has closed the connection")
            self.transport.write(view[at : at + _SLICE])
            if not self._writable.is_set():
                await self._writable.wait()

    @contextmanager
    def on_end(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback` when the other side ends the connection; at once if it has ended
        already."""
        if self._ended:
            callback()
        self._on_end = callback
        try:
            yield
        finally:
            self._on_end = None

    def close(self) -> None:
        """Close the connection. What an interrupted `write` left is dropped: the other side may
        never read it."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def drop(self) -> None:
        """Close at once. Unsent data is lost."""
        self.transport.abort()

    def reset(self) -> None:
        """Close with RST, so that the client does not take it for the regular end of an answer."""
        raw = self.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received.append(bytes(self._buffer[:nbytes]))
        self._size += nbytes
        if self._size > _MAX_UNREAD and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._end()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._error = error
        self._end()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _end(self) -> None:
        self._ended = True
        self._wake()
        if self._on_end is not None:
            self._on_end()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
