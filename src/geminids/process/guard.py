"""Start one guard process per host, and report the start and end of each run to it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from geminids.at_fork import run_in_child
from geminids.process.marker import MARKER, Mark

__all__ = ["guard_run", "release_run"]

# Seconds that a guard has to read its pipe before we replace it.
_WRITE_TIMEOUT = 1.0


class _Guard(subprocess.Popen[bytes]):
    """The guard process and our end of its pipe, which stays open until this host ends."""

    pipe: int

    def __del__(self) -> None:
        """Suppress Popen's ResourceWarning at exit: the guard outlives the host on purpose."""


_lock = threading.Lock()
_guard: _Guard | None = None
_live: set[str] = set()


def guard_run(mark: Mark) -> None:
    """If this host dies from now on, the guard ends every process that carries `mark`."""
    with _lock:
        _live.add(str(mark))
        _send(f"run {mark}\n")


def release_run(mark: Mark) -> None:
    """The run is over: the guard no longer ends its processes."""
    with _lock:
        _live.discard(str(mark))
        if _live or (_guard is not None and _guard.poll() is None):
            _send(f"done {mark}\n")


def _send(line: str) -> None:
    global _guard
    if _guard is not None and _guard.poll() is None and _write_all(_guard.pipe, line.encode()):
        return
    for _ in range(2):
        # Clear `_guard` first, so that its pipe is closed only once even if no new guard can be
        # started.
        old, _guard = _guard, None
        _discard(old)
        _guard = _start()
        # The previous guard was killed or suspended: send all live runs to the new one.
        if _write_all(_guard.pipe, "".join(f"run {mark}\n" for mark in sorted(_live)).encode()):
            return


def _write_all(pipe: int, data: bytes) -> bool:
    """Write all of `data`; False if the guard is gone or suspended (its pipe stays full)."""
    until = time.monotonic() + _WRITE_TIMEOUT
    while data:
        try:
            data = data[os.write(pipe, data) :]
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.005)
        except BrokenPipeError:
            return False
    return True


def _start() -> _Guard:
    spec = importlib.util.find_spec("psutil")
    assert spec and spec.origin
    program = Path(__file__).with_name("guard_main.py")
    theirs, ours = os.pipe()
    try:
        ours = _move_above_stdio(ours)
        os.set_blocking(ours, False)
        guard = _Guard(
            # -I -S: no user site, no .pth files. It starts in 10 ms and imports psutil only when it
            # must act.
            [
                sys.executable,
                "-I",
                "-S",
                str(program),
                str(Path(spec.origin).parent.parent),
                MARKER,
                str(os.getpid()),
            ],
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            # Empty: no secrets of the host, and no mark of an outer run, whose end must not end the
            # guard.
            env={},
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    guard.pipe = ours
    return guard


def _move_above_stdio(fd: int) -> int:
    """Move the descriptor above 2.

    If the host closed stdin, stdout or stderr, a later `open()` could reuse the number and break
    the guard's pipe.
    """
    if fd > 2 or os.name == "nt":
        return fd
    import fcntl

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return moved


def _discard(guard: _Guard | None) -> None:
    """Kill a guard that no longer reads, and close its pipe."""
    if guard is not None:
        # Kill before closing: a suspended guard that wakes up with a closed pipe would end all live
        # runs.
        guard.kill()
        os.close(guard.pipe)
        guard.wait()


def _reset_after_fork() -> None:
    """A forked child is a new host: it has no guard yet and must not hold the parent's pipe."""
    global _guard, _lock
    _lock = threading.Lock()
    _live.clear()
    if _guard is not None:
        os.close(_guard.pipe)
        _guard.returncode = 0  # not our child: nothing to wait for
    _guard = None


run_in_child(_reset_after_fork)
