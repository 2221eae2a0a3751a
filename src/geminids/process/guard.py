"""The host's side of the guard: one small process a host, told of every run that begins and ends."""

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

# Seconds that a guard has to read what it was told, before another one takes its place.
_PATIENCE = 1.0


class _Guard(subprocess.Popen[bytes]):
    """The process, and the end of the pipe that it is told by: closed by the system when we end, and not before."""

    pipe: int

    def __del__(self) -> None:
        """It outlives us on purpose: no warning that it still runs when Python takes itself down."""


_lock = threading.Lock()
_guard: _Guard | None = None
_live: set[str] = set()


def guard_run(mark: Mark) -> None:
    """From now on, should this host die, everything that carries `mark` is ended."""
    with _lock:
        _live.add(str(mark))
        _tell(f"run {mark}\n")


def release_run(mark: Mark) -> None:
    """The run is over, and whatever is left of it is left on purpose."""
    with _lock:
        _live.discard(str(mark))
        if _live or (_guard is not None and _guard.poll() is None):
            _tell(f"done {mark}\n")


def _tell(line: str) -> None:
    global _guard
    if _guard is not None and _guard.poll() is None and _heard(_guard.pipe, line.encode()):
        return
    for _ in range(2):
        # Forgotten first: its pipe is closed once, also where no new one can be started.
        old, _guard = _guard, None
        _give_up(old)
        _guard = _start()
        # Somebody has ended or stopped the one before: a new one is told of every live run.
        if _heard(_guard.pipe, "".join(f"run {mark}\n" for mark in sorted(_live)).encode()):
            return


def _heard(pipe: int, data: bytes) -> bool:
    """Whether all of it could be written. The pipe of one that was stopped is full some day, and holds up no run."""
    until = time.monotonic() + _PATIENCE
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
        ours = _out_of_the_way(ours)
        os.set_blocking(ours, False)
        guard = _Guard(
            # -I -S: no user site, no .pth files; it starts in 10 ms and imports psutil only when it must act.
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
            # No variables: neither the host's secrets nor the mark of an outer run, whose end must not end it.
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


def _out_of_the_way(fd: int) -> int:
    """The same behind 0, 1 and 2, which a host may have closed: whoever takes these would take the guard's pipe."""
    if fd > 2 or os.name == "nt":
        return fd
    import fcntl

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return moved


def _give_up(guard: _Guard | None) -> None:
    """Close what is left of a guard that somebody ended, or stopped."""
    if guard is not None:
        # First: at the end of its pipe it would end all live runs, should it wake up.
        guard.kill()
        os.close(guard.pipe)
        guard.wait()


def _forget() -> None:
    """A fork is a host of its own: it has no guard yet, and must not hold the parent's pipe."""
    global _guard, _lock
    _lock = threading.Lock()
    _live.clear()
    if _guard is not None:
        os.close(_guard.pipe)
        _guard.returncode = 0  # not our child: nothing to wait for
    _guard = None


run_in_child(_forget)
