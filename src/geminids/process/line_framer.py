"""Join chunks of bytes into blocks of complete lines, in linear time and with limited memory."""

from __future__ import annotations

__all__ = ["LineFramer"]


class LineFramer:
    """Joins chunks of bytes into complete lines. `feed(chunk)` returns the lines that are complete;
    `rest()` returns the bytes after the last newline.

    A line with more than `limit` bytes is left out. Its size is added to the list `dropped`, so
    that the caller can report it.

    The chunks of an incomplete line are kept in a list, and joined only when the line is complete.
    Joining them one by one would take quadratic time.

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
        """Add a chunk. Return all lines that are complete now, with their newlines. Return empty
        bytes if there are none.
        """
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
        """Return the bytes after the last newline, and forget them. Call this at the end of the
        stream.

        If the bytes are longer than `limit`, add their size to `dropped`, and return empty bytes.
        """
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
        """Return the stored chunks and `head` as one block of lines.

        The stored chunks are the beginning of the first line. `head` contains the rest of this
        line, and ends with a newline. If the first line is too long, leave it out and add its size
        to `dropped`.
        """
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
