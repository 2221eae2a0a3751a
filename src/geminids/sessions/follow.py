"""Follow a session file while the CLI writes it, and return its new lines."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from geminids.process.line_framer import LineFramer

__all__ = ["Follower"]

# The maximum number of bytes that one call of `read_new` reads. A large file is read in steps, to
# limit the memory.
_STEP = 8 * 1024 * 1024
# How many of the bytes that were read last are kept. Before new bytes are read, they are compared
# with the file. If they differ, the file was rewritten.
_COMPARED = 256

_Stamp = tuple[int, int, int, int]


class Follower:
    """Reads a session file while the CLI writes it. Each call of `read_new` returns the lines that
    were added since the last call.

    `source` is the path of the file, which may not exist yet. `source` can also be a function that
    returns the path, or None if the path is not known yet. As long as it returns None, each call of
    `read_new` calls it again. It is also called again after the file was removed. With `from_end`,
    the lines that are in the file when the `Follower` is created are skipped. A line longer than
    `limit` bytes is dropped, and its size is added to the list `dropped`.

    `restarts` counts how often the file was replaced or rewritten. After a restart, all lines are
    returned again from the first one. So the caller must discard what it derived from earlier
    lines. `problem` says why the last call could not read the file; None if it could.

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
        """The number of bytes of the file that the last call of `read_new` did not read.

        If it is not 0, call `read_new` again immediately. Each call reads a limited number of
        bytes.
        """
        return max(0, self._size - self._at)

    def read_new(self) -> list[bytes]:
        """Return the lines that were completed since the last call, without line breaks.

        This method does not raise. If the file cannot be read, it sets `problem`.
        """
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
        """Forget the current file, because it was removed. A file that appears later at the same
        path is read from its start, as a new file.
        """
        self.path = self.problem = None
        if self._stamp is not None:
            self._stamp = (0, 0, 0, 0)
            self._size = self._at

    def _read(self, path: Path) -> list[bytes]:
        fd = _open(path)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                self.problem = f"{path} is not a regular file"
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
        """Return whether the file was replaced or rewritten since it was last read."""
        if self._stamp is None or not self._at:
            return False
        if self._stamp[:2] != (status.st_dev, status.st_ino) or status.st_size < self._at:
            return True
        # The inode and the size do not show everything: an inode can be reused, and a rewritten
        # file can be longer than before. So compare the bytes that we read last.
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
    # Without O_NONBLOCK, opening a FIFO would wait for a writer.
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _stamp(status: os.stat_result) -> _Stamp:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
