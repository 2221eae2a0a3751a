"""Lock a file for this process.

The kernel releases the lock when the process dies; forked children do not keep it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from geminids.at_fork import run_in_child

__all__ = ["FileLock"]

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.05


class FileLock:
    """A file that this process has locked.

    `is_held` is false after `close`, and in forked children.

    Only the holder may remove the file, before it closes the lock. A lock is valid only while the
    path still names the locked file, so two processes cannot hold the same path.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_held = True
        _held.add(self)

    @classmethod
    def take(cls, file: Path, *, make: bool = True, wait: float = 0.0) -> FileLock | None:
        """Lock a file. Return None if another process still holds it after `wait` seconds.

        Raises FileNotFoundError if the file does not exist; with `make`, if its folder does not
        exist.
        """
        import fcntl  # not available on Windows

        deadline, pause = time.monotonic() + wait, _SHORTEST_PAUSE
        while True:
            fd = os.open(file, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if make else 0), 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(fd), os.stat(file, follow_symlinks=False)):
                    return cls(fd)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    return None
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except FileNotFoundError:
                pass  # the previous holder removed it
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    @classmethod
    def wait_for(cls, file: Path) -> FileLock:
        """Lock a file. Wait as long as another process holds it."""
        lock = cls.take(file, wait=float("inf"))
        assert lock is not None
        return lock

    def close(self) -> None:
        """Release the lock. A second call has no effect."""
        if self.is_held:
            self.is_held = False
            _held.discard(self)
            os.close(self.fd)


_held: set[FileLock] = set()


def _close_copies() -> None:
    for lock in list(_held):
        lock.close()


run_in_child(_close_copies)
