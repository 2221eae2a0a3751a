"""The program of the guard: a process that waits until its host (the process that uses geminids)
dies, and then ends all processes of the host's unfinished runs.

`process/guard.py` starts this file as a script. The script imports nothing of geminids, for three
reasons. It must start fast, stay small, and work even while the host's virtual environment is being
deleted.

The guard reads lines from stdin: `run MARK` when a run starts, and `done MARK` when the run ends. A
mark is a text that identifies a run; all processes of the run have it in their environment. The
guard knows that the host is dead when stdin ends, or when the guard gets a new parent process.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Any

# Seconds between two checks whether the host is alive. Waiting for the end of stdin is not enough:
# a forked child of the host may keep the pipe open after the host has died.
_POLL = 0.25
_GRACE = 0.4  # seconds between SIGTERM and SIGKILL
_TIMEOUT = 10.0


def watch(host_pid: int) -> set[str]:
    """Wait until the host (the process that uses geminids) is dead. Return the marks of its
    unfinished runs. A mark is a text that identifies a run.
    """
    live: set[str] = set()
    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], _POLL if live else 5 * _POLL)
        if ready:
            chunk = os.read(0, 65536)
            if not chunk:
                return live
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                word, _, mark = line.decode("ascii", "replace").partition(" ")
                if word == "run":
                    live.add(mark)
                else:
                    live.discard(mark)
        elif os.getppid() != host_pid:
            return live


def end_all(marks: set[str], marker: str, psutil: Any) -> None:
    """End all processes that have one of `marks` in their environment. `marker` is the name of the
    environment variable, and `psutil` the imported module.

    Each process gets SIGTERM first. Processes that are still running after 0.4 seconds get SIGKILL.
    The function returns when no process is left, or after 10 seconds.
    """
    terminated: set[Any] = set()
    started = time.monotonic()
    while time.monotonic() - started < _TIMEOUT:
        processes = find(marks, marker, psutil)
        if not processes:
            return
        grace_is_over = time.monotonic() - started > _GRACE
        for process in processes:
            try:
                if grace_is_over:
                    process.send_signal(signal.SIGKILL)
                elif process not in terminated:
                    terminated.add(process)
                    process.send_signal(signal.SIGTERM)
            except (psutil.Error, OSError):
                pass
        time.sleep(0.03)


def find(marks: set[str], marker: str, psutil: Any) -> set[Any]:
    """Return all live processes that have one of `marks` in their environment, and all descendants
    of these processes. This process itself is left out.

    `marker` is the name of the environment variable, and `psutil` the imported module.
    """
    processes: set[Any] = set()
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            if marks.isdisjoint(marks_of(process, marker)):
                continue
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            processes.add(process)
            processes.update(
                p for p in process.children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE
            )
        except (psutil.Error, OSError):
            continue
    processes.discard(psutil.Process())
    return processes


def marks_of(process: Any, marker: str) -> list[str]:
    """Return the marks of the runs that a process belongs to. They are the words in the environment
    variable whose name is `marker`.

    A process that is starting can have an empty environment for a short time. Therefore an empty
    environment is read again, up to 12 times (see `marker_of` in process/tree.py).
    """
    for _ in range(12):
        environ = process.environ()
        if environ or process.cmdline():
            return str((environ or process.environ()).get(marker, "")).split()
        if sys.platform == "linux" and process.ppid() in (0, 2):
            break  # a kernel thread
        time.sleep(0.0005)
    return []


def main() -> None:
    psutil_home, marker, host_pid = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Ignore signals that are sent to the host and the guard together: the guard must outlive
        # the host.
        signal.signal(number, signal.SIG_IGN)
    live = watch(host_pid)
    if live:
        sys.path.insert(0, psutil_home)
        import psutil  # imported only here, because its folder was added to the path just now

        end_all(live, marker, psutil)


if __name__ == "__main__":
    main()
