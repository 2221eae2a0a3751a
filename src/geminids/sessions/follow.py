"""Follow one journal: return complete new lines while the file is created, grows or is replaced."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from geminids.process.line_framer import LineFramer

__all__ = ["Follower"]

# Bytes per call: a journal of 400 MB is read in steps, so that memory stays bounded.
_STEP = 8 * 1024 * 1024
# The last bytes are compared before new ones are read, to detect a file that was rewritten in place.
_COMPARED = 256

_Stamp = tuple[int, int, int, int]


class Follower:
    """Reads what was added to a journal since the last call. If nothing was, that is one `stat`.

    `source` is the file, which may not exist yet, or a function that finds it; the function is called
    again while it returns None, and when the file is gone. `from_end` skips what is in the file now.

    Never raises, whatever happens to the file. `restarts` counts how often the file was replaced or
    rewritten: all lines then come again from the first one, so drop what you derived from them.
    `problem` is why the last call could not read, `behind` how many bytes are still unread, `dropped`
    the sizes of lines that were too long.

    >>> follower = Follower(Path("/no/such/journal"))
    >>> follower.read_new(), follower.restarts, follower.problem
    ([], 0, None)
    """

    def __init__(
        self,
        source: Path | Callable[[], Path | None],
        *,
        from_end: bool = False,
        limit: int = 256 * 1024 * 1024,
    ) -> None:
        self._find = (lambda: source) if isinstance(source, Path) else source
        self._limit = limit
        self._stamp: _Stamp | None = None
        self._at = self._size = 0
        self._tail = b""
        self._framer = LineFramer(limit)
        self.path: Path | None = None
        self.restarts = 0
        self.problem: str | None = None
        self.dropped: list[int] = []
        if from_end:
            self._skip_to_end()

    @property
    def behind(self) -> int:
        """How many bytes of the last call are unread. If any, call `read_new` again immediately."""
        return max(0, self._size - self._at)

    def read_new(self) -> list[bytes]:
        """Return the lines that were completed since the last call, without newlines. Never raises."""
        try:
            path = self.path or self._locate()
            if path is None or (not self.behind and _stamp(os.stat(path)) == self._stamp):
                return []
            return self._read(path)
        except (FileNotFoundError, NotADirectoryError):
            self._lose()
        except (OSError, ValueError) as error:  # ValueError: NUL in the path
            self.problem = str(error)
        return []

    def _locate(self) -> Path | None:
        self.path = self._find()
        return self.path

    def _lose(self) -> None:
        """The file is gone: a file that appears under its name later is a new one."""
        self.path = self.problem = None
        if self._stamp is not None:
            self._stamp = (0, 0, 0, 0)
            self._size = self._at

    def _read(self, path: Path) -> list[bytes]:
        fd = _open(path)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                self.problem = f"{path} is not a file"
                self._stamp = _stamp(status)
                return []
            self.problem = None
            if self._is_another(fd, status):
                self.restarts += self._at > 0
                self._begin(0)
            self._stamp, self._size = _stamp(status), status.st_size
            return self._take(fd)
        finally:
            os.close(fd)

    def _is_another(self, fd: int, status: os.stat_result) -> bool:
        """Whether the file is not the one of which we have read `_at` bytes."""
        if self._stamp is None or not self._at:
            return False
        if self._stamp[:2] != (status.st_dev, status.st_ino) or status.st_size < self._at:
            return True
        # Inodes are reused, and a file can be rewritten in place and be longer than before.
        return os.pread(fd, len(self._tail), self._at - len(self._tail)) != self._tail

    def _take(self, fd: int) -> list[bytes]:
        blocks: list[bytes] = []
        size = 0
        while size < _STEP:
            chunk = os.pread(fd, min(_STEP, 1024 * 1024), self._at)
            if not chunk:
                break
            size += len(chunk)
            self._at += len(chunk)
            self._tail = (self._tail + chunk)[-_COMPARED:] if len(chunk) < _COMPARED else chunk[-_COMPARED:]
            if block := self._framer.feed(chunk):
                blocks.append(block)
        if self._framer.dropped:
            self.dropped += self._framer.dropped
            self._framer.dropped.clear()
        return b"".join(blocks).split(b"\n")[:-1]

    def _begin(self, at: int) -> None:
        self._at = self._size = at
        self._tail = b""
        self._framer = LineFramer(self._limit)

    def _skip_to_end(self) -> None:
        try:
            if (path := self._locate()) is None:
                return
            fd = _open(path)
        except (OSError, ValueError):
            self.path = None
            return
        try:
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode):
                self._begin(status.st_size)
                self._stamp = _stamp(status)
                self._tail = os.pread(fd, _COMPARED, max(0, self._at - _COMPARED))[: min(_COMPARED, self._at)]
        finally:
            os.close(fd)


def _open(path: Path) -> int:
    # O_NONBLOCK: opening a FIFO without a writer would block forever.
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _stamp(status: os.stat_result) -> _Stamp:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
