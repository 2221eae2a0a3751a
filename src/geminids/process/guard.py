"""The host's side of the guard: one small process a host, told of every run that begins and ends."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

from geminids.process.marker import MARKER, Mark

__all__ = ["guard_run", "guarded", "release_run"]


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


def guarded() -> int | None:
    """The guard's pid, or None where none was needed yet."""
    with _lock:
        return _guard.pid if _guard is not None and _guard.poll() is None else None


def _tell(line: str) -> None:
    global _guard
    for _ in range(2):
        if _guard is None or _guard.poll() is not None:
            _give_up(_guard)
            _guard = _start()
            line = "".join(f"run {mark}\n" for mark in sorted(_live))
        try:
            os.write(_guard.pipe, line.encode())
            return
        except BrokenPipeError:
            _give_up(_guard)  # somebody ended it: a new one is told of every live run
            _guard = None


def _start() -> _Guard:
    spec = importlib.util.find_spec("psutil")
    assert spec and spec.origin
    program = Path(__file__).with_name("guard_main.py")
    theirs, ours = os.pipe()
    try:
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


def _give_up(guard: _Guard | None) -> None:
    """Close what is left of a guard that somebody ended."""
    if guard is not None:
        os.close(guard.pipe)
        guard.kill()  # broken pipe: it is dying, and has nothing to read any more
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
