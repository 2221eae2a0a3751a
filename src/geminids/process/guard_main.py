"""The guard's own program: when its host dies, it ends all that the host's live runs have left running.

Started as a plain script by `process/guard.py`, with nothing of geminids imported: it must start at once, stay
small, and work while the host's virtual environment is being taken away. It reads lines from its stdin:
`run MARK` (a run began), `done MARK` (it is over, nothing to do). The end of that pipe, or a new parent, means
that the host is dead.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Any

_LOOK = 0.25  # seconds between two looks at the parent, for a fork of the host that holds the pipe open
_GRACE = 0.4  # seconds between TERM and KILL
_GIVE_UP = 10.0


def watch(host_pid: int) -> set[str]:
    """Wait until the host is dead; return the marks of its unfinished runs."""
    live: set[str] = set()
    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], _LOOK if live else 5 * _LOOK)
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
    """Ask, wait a moment, kill; then look again until nothing is left."""
    asked: set[Any] = set()
    began = time.monotonic()
    while time.monotonic() - began < _GIVE_UP:
        found = find(marks, marker, psutil)
        if not found:
            return
        late = time.monotonic() - began > _GRACE
        for process in found:
            try:
                if late:
                    process.send_signal(signal.SIGKILL)
                elif process not in asked:
                    asked.add(process)
                    process.send_signal(signal.SIGTERM)
            except (psutil.Error, OSError):
                pass
        time.sleep(0.03)


def find(marks: set[str], marker: str, psutil: Any) -> set[Any]:
    """All live processes that carry one of the marks, and their descendants."""
    found: set[Any] = set()
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            if marks.isdisjoint(marks_of(process, marker)):
                continue
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            found.add(process)
            found.update(p for p in process.children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE)
        except (psutil.Error, OSError):
            continue
    found.discard(psutil.Process())
    return found


def marks_of(process: Any, marker: str) -> list[str]:
    """The marks of a process; within exec it has none for a moment (see process/tree.py, `marker_of`)."""
    for _ in range(12):
        environ = process.environ()
        if environ or process.cmdline():
            return str((environ or process.environ()).get(marker, "")).split()
        if sys.platform == "linux" and process.ppid() in (0, 2):
            break  # the kernel's own
        time.sleep(0.0005)
    return []


def main() -> None:
    psutil_home, marker, host_pid = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Whoever ends the host's whole group must not end its guard first.
        signal.signal(number, signal.SIG_IGN)
    live = watch(host_pid)
    if live:
        sys.path.insert(0, psutil_home)
        import psutil

        end_all(live, marker, psutil)


if __name__ == "__main__":
    main()
