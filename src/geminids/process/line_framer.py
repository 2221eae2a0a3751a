"""Chunks of bytes become blocks of whole lines, in linear time and bounded memory."""

from __future__ import annotations

__all__ = ["LineFramer"]


class LineFramer:
    """Collects chunks until a line is whole.

    Chunks are kept in a list and joined once: adding them up one by one would make a long line quadratic.
    A line of more than `limit` bytes is dropped, and its size is put into `dropped` for a notice.

    >>> framer = LineFramer()
    >>> framer.feed(b'{"a"'), framer.feed(b': 1}\\n{"b": '), framer.rest()
    (b'', b'{"a": 1}\\n', b'{"b": ')
    """

    def __init__(self, limit: int = 256 * 1024 * 1024) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.dropped: list[int] = []

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; return all lines that are whole now, newlines included."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._hold(chunk)
            return b""
        whole = chunk if end == len(chunk) else chunk[:end]
        if self._size:
            whole = self._join(whole)
        if len(whole) > self.limit:
            whole = self._without_long(whole)
        if end < len(chunk):
            self._hold(chunk[end:])
        return whole

    def rest(self) -> bytes:
        """What came after the last newline, at the end of the stream."""
        rest = b"".join(self._parts)
        if self._size > self.limit:
            self.dropped.append(self._size)
        self._parts, self._size = [], 0
        return rest

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self.limit:
            self._parts = []  # too long already: from here on only counted
        else:
            self._parts.append(part)

    def _join(self, head: bytes) -> bytes:
        """The held beginning and `head`, which ends with a newline."""
        first = head.index(b"\n")
        size = self._size + first
        if size > self.limit:
            self.dropped.append(size)
            whole = head[first + 1 :]
        else:
            whole = b"".join([*self._parts, head])
        self._parts, self._size = [], 0
        return whole

    def _without_long(self, whole: bytes) -> bytes:
        kept = []
        for line in whole.split(b"\n")[:-1]:
            if len(line) > self.limit:
                self.dropped.append(len(line))
            else:
                kept.append(line + b"\n")
        return b"".join(kept)
