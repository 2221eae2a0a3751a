"""Keep other processes of the user from reading this one's environment, memory and files."""

from __future__ import annotations

import os
import sys

from geminids.process.marker import MARKER

__all__ = ["protect_command", "protect_host"]

_PR_SET_DUMPABLE = 4


def protect_host() -> bool:
    """Keep other processes of the same user from reading this one; True if it worked (Linux only).

    A key in the environment of this process stays in `/proc/PID/environ` until it exits, even if
    `os.environ` changes, and an agent's tools run as the same user. After this call they can read
    neither it nor the memory nor the open files. The cost: no core dumps, only root can attach a
    debugger or profiler (gdb, strace, py-spy), and the process cannot open its own
    `/proc/self/environ` (`os.environ` still works). Forks inherit the protection, new programs do
    not. Root can still read everything.
    """
    if sys.platform != "linux":
        return False
    try:
        import ctypes  # imported late: 6 ms, and a Python can be built without it

        return int(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)) == 0
    except (ImportError, OSError, AttributeError):
        return False


def protect_command() -> None:
    """Protect a process that only geminids uses: a command, or the owner of a pool.

    A process inside a run stays readable: the run's tools could already read its environment, and
    the host of that run must read its mark to end it.
    """
    if MARKER not in os.environ:
        protect_host()
