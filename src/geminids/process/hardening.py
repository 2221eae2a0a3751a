"""Prevent other processes of the user from reading this process's environment, memory and open
files.
"""

from __future__ import annotations

import os
import sys

from geminids.process.marker import MARKER

__all__ = ["protect_command", "protect_host"]

_PR_SET_DUMPABLE = 4


def protect_host() -> bool:
    """Prevent other processes of the same user from reading the secrets of this process.

    Return whether the protection was turned on. This is possible only on Linux.

    The tools of an agent run as the same user. A key in the environment of this process stays in
    `/proc/PID/environ` until the process exits, even if `os.environ` changes. After this call, the
    tools cannot read the environment, the memory or the open files of this process.

    There are disadvantages. The process writes no core dump when it crashes. Only root can attach a
    debugger or a profiler (gdb, strace, py-spy). The process cannot open its own
    `/proc/self/environ`, but `os.environ` still works. A forked process keeps the protection, but a
    program that this process or a forked process starts does not have it. Root can still read
    everything.
    """
    if sys.platform != "linux":
        return False
    try:
        import ctypes  # imported late: it takes 6 ms, and Python can be built without it

        return int(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)) == 0
    except (ImportError, OSError, AttributeError):
        return False


def protect_command() -> None:
    """Call `protect_host`, so that other processes cannot read the secrets of this process. Do
    nothing if a tool of another run (the outer run) started this process.

    Use this function in a process that only geminids uses: a command of geminids, or the process
    that owns a shared pool of CLIs.

    Inside an outer run, this process stays unprotected for two reasons. First, the tools of the
    outer run have the same environment anyway. Second, the program that started the outer run must
    read the environment of this process to find and end this process.
    """
    if MARKER not in os.environ:
        protect_host()
