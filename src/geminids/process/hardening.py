"""A host that no other process of its user can look into: neither its environment, nor its memory, nor its files."""

from __future__ import annotations

import os
import sys

from geminids.process.marker import MARKER

__all__ = ["protect_command", "protect_host"]

_PR_SET_DUMPABLE = 4


def protect_host() -> bool:
    """Keep other processes of the same user out of this one; says whether the system can do that (Linux alone).

    A key that this process was given in its environment stands in `/proc/PID/environ` while it lives, whatever
    becomes of `os.environ`, and an agent's tools run as the same user. From now on they can read neither that nor
    the memory nor the open files. The price: no core dumps, no debugger or profiler but root's can attach (gdb,
    strace, py-spy), and the process itself cannot open its own `/proc/self/environ` (`os.environ` works as ever).
    Forks inherit it, programs that are started do not. Root is not kept out.
    """
    if sys.platform != "linux":
        return False
    try:
        import ctypes  # imported late: 6 ms, and a Python can be built without it

        return int(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)) == 0
    except (ImportError, OSError, AttributeError):
        return False


def protect_command() -> None:
    """Protect a process that is ours alone: a command, or the pool's owner.

    One within a run stays open: what is in its environment was within reach of that run's tools before, and the
    host of that run has to read the mark in it, to end it.
    """
    if MARKER not in os.environ:
        protect_host()
