"""Join chunks of bytes into blocks of whole lines, in linear time and bounded memory."""

from __future__ import annotations

__all__ = ["LineFramer"]


class LineFramer:
    """Collects chunks until a line is complete.

    It keeps chunks in a list and joins them once; concatenating them one by one would be quadratic
    for a long line. A line of more than `limit` bytes is dropped, and its size is added to
    `dropped` for a notice.

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
        """Add a chunk; return all lines that are complete now, with their newlines."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._keep(chunk)
            return b""
        lines = chunk if end == len(chunk) else chunk[:end]
        if self._size:
            lines = self._join(lines)
        if len(lines) > self.limit:
            lines = self._without_long(lines)
        if end < len(chunk):
            self._keep(chunk[end:])
        return lines

    def rest(self) -> bytes:
        """Return the bytes after the last newline, at the end of the stream."""
        rest = b"".join(self._parts)
        if self._size > self.limit:
            self.dropped.append(self._size)
        self._parts, self._size = [], 0
        return rest

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self.limit:
            self._parts = []  # too long: only count the bytes from here on
        else:
            self._parts.append(part)

    def _join(self, head: bytes) -> bytes:
        """Join the kept parts with `head`, which ends with a newline."""
        first = head.index(b"\n")
        size = self._size + first
        if size > self.limit:
            self.dropped.append(size)
            lines = head[first + 1 :]
        else:
            lines = b"".join([*self._parts, head])
        self._parts, self._size = [], 0
        return lines

    def _without_long(self, lines: bytes) -> bytes:
        kept = []
        for line in lines.split(b"\n")[:-1]:
            if len(line) > self.limit:
                self.dropped.append(len(line))
            else:
                kept.append(line + b"\n")
        return b"".join(kept)
