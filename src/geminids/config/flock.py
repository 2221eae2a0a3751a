"""Lock a file for one process. No other process can lock the file until the lock is released.

The kernel releases the lock when this process ends, and a forked child does not inherit it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from geminids.at_fork import run_in_child

__all__ = ["FileLock"]

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.05


class FileLock:
    """A file that this process has locked. To get a `FileLock`, call `take` or `wait_for`.

    `is_held` is false after `close`, and in a forked child process, which does not inherit the
    lock.

    Only the process that holds the lock may remove the file, and only before it calls `close`.
    Otherwise, two processes could hold a lock for the same path: one process on the removed file,
    the other on a new file.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_held = True
        _held.add(self)

    @classmethod
    def take(cls, file: Path, *, make: bool = True, wait: float = 0.0) -> FileLock | None:
        """Lock a file. Return None if another process still holds the lock after `wait` seconds.

        If the file does not exist, create it if `make` is true, otherwise raise FileNotFoundError.
        If its folder does not exist, also raise FileNotFoundError.
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
                pass  # the process that held the lock has removed the file: try again
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    @classmethod
    def wait_for(cls, file: Path) -> FileLock:
        """Lock a file; create it if it does not exist.

        If another process holds the lock, wait without a time limit until it is released.
        """
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
