"""Start the guard: a small process that ends the processes of all runs if the host (the process
that uses geminids) dies.

There is one guard for each host. This module reports the start and the end of each run to the
guard.
"""

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

# Replace a guard that has not read its pipe for this many seconds.
_WRITE_TIMEOUT = 1.0


class _Guard(subprocess.Popen[bytes]):
    """The guard: a process that ends the processes of all runs if the host (the process that uses
    geminids) dies.

    `pipe` is the write end of the guard's stdin. It closes when the host ends, even after a crash.
    The closed pipe shows the guard that the host has ended.
    """

    pipe: int

    def __del__(self) -> None:
        """Do nothing. This method replaces `Popen.__del__`, which prints a ResourceWarning if the
        process is still running. The guard must live longer than this process.
        """


_lock = threading.Lock()
_guard: _Guard | None = None
_live: set[str] = set()


def guard_run(mark: Mark) -> None:
    """Register a run with the guard, a small process that watches this process. If this process
    dies, the guard ends every process that has `mark` in its environment.
    """
    with _lock:
        _live.add(str(mark))
        _send(f"run {mark}\n")


def release_run(mark: Mark) -> None:
    """Remove a run from the guard's list (see `guard_run`), because the run has ended. From then
    on, the guard does not end processes that the run left running.
    """
    with _lock:
        _live.discard(str(mark))
        if _live or (_guard is not None and _guard.poll() is None):
            _send(f"done {mark}\n")


def _send(line: str) -> None:
    global _guard
    if _guard is not None and _guard.poll() is None and _write_all(_guard.pipe, line.encode()):
        return
    for _ in range(2):
        # Clear `_guard` first, so that its pipe is closed only once, even if no new guard can be
        # started.
        old, _guard = _guard, None
        _discard(old)
        _guard = _start()
        # The previous guard was killed or suspended, so send all unfinished runs to the new one.
        if _write_all(_guard.pipe, "".join(f"run {mark}\n" for mark in sorted(_live)).encode()):
            return


def _write_all(pipe: int, data: bytes) -> bool:
    """Write all of `data` to the guard's pipe. Return whether everything was written.

    The write fails if the guard has exited. It also fails if the guard does not read its pipe
    within one second, for example because the guard is suspended.
    """
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
            # -I -S: ignore the user's site packages and .pth files, so that the guard starts in 10
            # ms. The guard imports psutil only when it must end processes.
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
            # Use an empty environment, without the host's secrets. If an outer run started the
            # host, its mark is missing too, so the end of the outer run does not end the guard.
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
    """Make sure that a file descriptor has a number above 2, and return the descriptor.

    If `fd` is 2 or less, duplicate it to a higher number and close `fd`. On Windows, always return
    `fd`.

    A new pipe can get the number 0, 1 or 2 if this process has closed its stdin, stdout or stderr.
    A later `open()` in this process could then reuse that number, and break the guard's pipe.
    """
    if fd > 2 or os.name == "nt":
        return fd
    import fcntl  # not available on Windows

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return moved


def _discard(guard: _Guard | None) -> None:
    """Kill a guard process that no longer reads its pipe, and close the pipe. Do nothing if `guard`
    is None.
    """
    if guard is not None:
        # Kill the guard before its pipe is closed: if a suspended guard continues and finds a
        # closed pipe, it ends all unfinished runs.
        guard.kill()
        os.close(guard.pipe)
        guard.wait()


def _reset_after_fork() -> None:
    """Forget the guard in a forked child process. The child starts its own guard when it needs one.

    The child must close its copy of the guard's pipe. Otherwise the pipe would stay open after the
    parent process dies, and the guard would not notice that death.
    """
    global _guard, _lock
    _lock = threading.Lock()
    _live.clear()
    if _guard is not None:
        os.close(_guard.pipe)
        _guard.returncode = 0  # this process cannot wait for the guard, which is not its child
    _guard = None


run_in_child(_reset_after_fork)
