"""A live tail of one journal: whole new lines, however the file is made, grown, rewritten or replaced."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from geminids.process.line_framer import LineFramer

__all__ = ["Follower"]

# One call hands out about so much: a journal of 400 MB is taken in steps, and memory stays bounded.
_STEP = 8 * 1024 * 1024
# The last bytes that were read are looked at again before new ones are: a file rewritten in place has others.
_SEEN = 256

_Stamp = tuple[int, int, int, int]


class Follower:
    """Reads what a journal has gained since the last look. One `stat` where that is nothing.

    `source` is the file, which need not be there yet, or a function that finds it; the function is asked again
    while it has found none, and when the file is gone. With `from_end`, what is in the file now is passed over.

    Nothing is raised for what happens to the file. `restarts` counts how often it was another file, or another
    text in the same file, so that all lines came again from the first: who folds them starts anew. `problem`
    is why the last look could not read, `behind` how many bytes are still to be read, `dropped` the sizes of
    lines that were too long to be kept.

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
            self._pass_over()

    @property
    def behind(self) -> int:
        """How many bytes were there at the last look and are not read yet: look again at once."""
        return max(0, self._size - self._at)

    def read_new(self) -> list[bytes]:
        """The lines that became whole since the last look, without their newlines; never raises for the file."""
        try:
            path = self.path or self._found()
            if path is None or (not self.behind and _stamp(os.stat(path)) == self._stamp):
                return []
            return self._read(path)
        except (FileNotFoundError, NotADirectoryError):
            self._lose()
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            self.problem = str(error)
        return []

    def _found(self) -> Path | None:
        self.path = self._find()
        return self.path

    def _lose(self) -> None:
        """The file is not there: whatever comes under its name is another one."""
        self.path = self.problem = None
        if self._stamp is not None:
            self._stamp = (0, 0, 0, 0)
            self._size = self._at

    def _read(self, path: Path) -> list[bytes]:
        fd = _opened(path)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                self.problem = f"{path} is not a file"
                self._stamp = _stamp(found)
                return []
            self.problem = None
            if self._is_another(fd, found):
                self.restarts += self._at > 0
                self._begin(0)
            self._stamp, self._size = _stamp(found), found.st_size
            return self._take(fd)
        finally:
            os.close(fd)

    def _is_another(self, fd: int, found: os.stat_result) -> bool:
        """Whether this is not the text of which `_at` bytes were read."""
        if self._stamp is None or not self._at:
            return False
        if self._stamp[:2] != (found.st_dev, found.st_ino) or found.st_size < self._at:
            return True
        # Inodes are given out again, and a file can be rewritten in place and be longer at once.
        return os.pread(fd, len(self._tail), self._at - len(self._tail)) != self._tail

    def _take(self, fd: int) -> list[bytes]:
        blocks: list[bytes] = []
        got = 0
        while got < _STEP:
            chunk = os.pread(fd, min(_STEP, 1024 * 1024), self._at)
            if not chunk:
                break
            got += len(chunk)
            self._at += len(chunk)
            self._tail = (self._tail + chunk)[-_SEEN:] if len(chunk) < _SEEN else chunk[-_SEEN:]
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

    def _pass_over(self) -> None:
        try:
            if (path := self._found()) is None:
                return
            fd = _opened(path)
        except (OSError, ValueError):
            self.path = None
            return
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                self._begin(found.st_size)
                self._stamp = _stamp(found)
                self._tail = os.pread(fd, _SEEN, max(0, self._at - _SEEN))[: min(_SEEN, self._at)]
        finally:
            os.close(fd)


def _opened(path: Path) -> int:
    # O_NONBLOCK: a FIFO that nobody writes to would hold us for ever.
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _stamp(found: os.stat_result) -> _Stamp:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
