"""A TCP connection that limits its buffers. The gateway uses it for its connections to the CLI and
to the API.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

__all__ = ["TcpConnection"]

# Stop reading from the socket while more than this number of bytes waits for `read`.
_MAX_UNREAD = 256 * 1024
# Larger data is given to the socket in slices of this size, so that it is never copied as a whole.
_SLICE = 256 * 1024
_READ_SIZE = 256 * 1024

_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


class TcpConnection(asyncio.BufferedProtocol):
    """A TCP connection that uses asyncio's transports directly.

    The streams of asyncio and anyio are not used, for two reasons: they need an extra iteration of
    the event loop for each piece of data, and they cannot detect data that arrives while no code is
    reading.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        # All connections of a loop share one read buffer, because the data is copied out of it
        # immediately. Without it, asyncio allocates 256 KB for each read (an mmap, an mremap and a
        # munmap), which takes a fifth of the CPU time for a chunk.
        if self._loop not in _buffers:
            # Allocate and free one large block: before a process has freed a block of that size,
            # glibc maps new memory for each large allocation. Without this, a request of 200 KB
            # causes 115 page faults and takes 0.3 ms longer.
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
        """Whether a new request may be sent on this connection. This is true if the connection is
        open and no unexpected data has arrived.
        """
        return not (self._ended or self._received or self.transport.is_closing())

    async def read(self) -> bytes:
        """Wait for data, and return all data that has arrived. Return b"" if the other side has
        closed the connection. Raises `OSError` if the connection is broken.
        """
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
        """Send data, and wait until the connection can accept more. Raises `OSError` if the
        connection is closed or broken.
        """
        view: bytes | memoryview = data if len(data) <= _SLICE else memoryview(data)
        for at in range(0, len(view), _SLICE):
            if self._ended or self.transport.is_closing():
                raise self._error or ConnectionResetError("the other side has closed the connection")
            self.transport.write(view[at : at + _SLICE])
            if not self._writable.is_set():
                await self._writable.wait()

    @contextmanager
    def on_end(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback` when the other side closes the connection during the `with` block. If the
        connection is closed already, call it immediately.
        """
        if self._ended:
            callback()
        self._on_end = callback
        try:
            yield
        finally:
            self._on_end = None

    def close(self) -> None:
        """Close the connection. If an interrupted `write` has left unsent data, the data is
        discarded: the other side may never read it, so waiting could take for ever.
        """
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def drop(self) -> None:
        """Close the connection immediately, and discard unsent data."""
        self.transport.abort()

    def reset(self) -> None:
        """Close the connection with a TCP reset (RST). The client then sees an error, and not the
        normal end of an answer.
        """
        raw = self.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    # The transport calls the following methods.

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
