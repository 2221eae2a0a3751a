"""The program of the guard: a process that waits until its host (the process that uses geminids)
dies, and then ends all processes of the host's unfinished runs.

`process/guard.py` starts this file as a script. It imports nothing of geminids, for three reasons:
it must start fast, stay small, and work even while the host's virtual environment is being deleted.

It reads lines from stdin: `run MARK` when a run starts, and `done MARK` when the run ends. A mark
is a text that identifies a run; all processes of the run have it in their environment. The host is
dead if stdin ends, or if the guard gets a new parent process.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Any

# Seconds between two checks whether the parent is alive. The end of stdin is not enough, because a
# forked child of the host may keep the pipe open.
_POLL = 0.25
_GRACE = 0.4  # seconds between SIGTERM and SIGKILL
_TIMEOUT = 10.0


def watch(host_pid: int) -> set[str]:
    """Wait until the host (the process that uses geminids) is dead. Return the marks of its
    unfinished runs. A mark is the text that identifies a run.
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
    """End all processes that have one of `marks` in the environment variable `marker`.

    Each process gets SIGTERM first. After a grace period of 0.4 seconds, the processes that are
    left get SIGKILL, until none is left or 10 seconds are over.
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
    """Return all live processes that have one of `marks` in the environment variable `marker`, and
    the descendants of these processes. This process itself is left out.
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
    """Return the marks of the runs that a process belongs to: the words in its environment variable
    `marker`.

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
        # A signal to the host's whole group must not end the guard first.
        signal.signal(number, signal.SIG_IGN)
    live = watch(host_pid)
    if live:
        sys.path.insert(0, psutil_home)
        import psutil  # imported only here, because its folder was added to the path just now

        end_all(live, marker, psutil)


if __name__ == "__main__":
    main()
