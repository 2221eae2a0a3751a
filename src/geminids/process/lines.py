"""Chunks of bytes become blocks of whole lines, in linear time and bounded memory."""

from __future__ import annotations

__all__ = ["LineFramer"]


class LineFramer:
    """Collects chunks until a line is whole.

    Chunks are kept in a list and joined once: adding them up one by one would make a long line quadratic.
    A line over `limit` bytes is dropped, and its size is put into `dropped` for a notice.

    >>> framer = LineFramer()
    >>> framer.feed(b'{"a"'), framer.feed(b': 1}\\n{"b": '), framer.rest()
    (b'', b'{"a": 1}\\n', b'{"b": ')
    """

    def __init__(self, limit: int = 256 * 1024 * 1024) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False
        self.dropped: list[int] = []

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; return all lines that are whole now, newlines included."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._hold(chunk)
            return b""
        if not self._parts and not self._skipping:
            whole = chunk if end == len(chunk) else chunk[:end]
        else:
            whole = self._join(chunk[:end])
        if end < len(chunk):
            self._hold(chunk[end:])
        return whole

    def rest(self) -> bytes:
        """What came after the last newline, at the end of the stream."""
        if self._skipping:
            self._drop()
            return b""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return rest

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        if self._skipping:
            return
        self._parts.append(part)
        if self._size > self._limit:
            self._skipping = True
            self._parts = []

    def _join(self, head: bytes) -> bytes:
        """The held beginning and `head`, which ends with a newline."""
        first = head.index(b"\n") + 1
        if self._skipping or self._size + first > self._limit:
            self._size += first - 1
            self._drop()
            return head[first:]
        self._parts.append(head)
        whole = b"".join(self._parts)
        self._parts, self._size = [], 0
        return whole

    def _drop(self) -> None:
        self.dropped.append(self._size)
        self._parts, self._size, self._skipping = [], 0, False
