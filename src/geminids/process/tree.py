"""Find the processes of a run, and send signals to them.

The processes of a run are the descendants of the CLI, and all processes that have the run's mark
(the text that identifies the run) in their environment.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import psutil

from geminids.process.marker import MARKER

__all__ = ["Ended", "ProcessSet", "all_marked", "command_of", "marked", "marker_of"]

# Read the environment of a process up to `_ATTEMPTS` times, with pauses of `_PAUSE` seconds. During
# exec, a process has neither a command line nor an environment for a short time. In a test with a
# program that only calls exec, this happened in one of eleven reads.
_ATTEMPTS = 12
_PAUSE = 0.0005


class Ended(msgspec.Struct, frozen=True):
    """A process that geminids ended, and the last signal that was sent to it ("TERM" or "KILL")."""

    pid: int
    command: str
    signal: str


def all_marked() -> Iterator[tuple[psutil.Process, str]]:
    """Yield each live process that belongs to a run, and the value of its environment variable
    `MARKER`. The value contains the marks of the runs that the process belongs to.

    This process itself and processes of other users are left out.
    """
    me = os.getpid()
    for pid in psutil.pids():
        if pid == me:
            continue
        try:
            process = psutil.Process(pid)
            value = marker_of(process)
        except (psutil.Error, OSError):
            continue  # it has exited, is a zombie, or belongs to another user
        if value:
            yield process, value


def marker_of(process: psutil.Process) -> str | None:
    """Return the marks of the runs that a process belongs to, or None if it belongs to no run. A
    run puts its mark into the environment of its processes, in the variable named by `MARKER`.

    Raises `psutil.Error` or `OSError` if the process has exited or cannot be read.
    """
    for _ in range(_ATTEMPTS):
        environ = process.environ()
        if environ or process.cmdline():
            return (environ or process.environ()).get(MARKER)
        if _is_kernel_thread(process):
            break
        time.sleep(_PAUSE)
    return None


def marked(mark: str) -> list[psutil.Process]:
    """Return the live processes that have this run mark (the text that identifies a run) in their
    environment.
    """
    return [process for process, value in all_marked() if mark in value.split()]


class ProcessSet:
    """The processes of one run that must end, and the last signal that was sent to each of them.

    After a member has exited, another process can get its process id. That process gets no signal,
    because psutil also compares the start times.
    """

    def __init__(self, find_marked: Callable[[], list[psutil.Process]]) -> None:
        self._find_marked = find_marked
        self._members: dict[psutil.Process, str | None] = {}
        self._commands: dict[int, str] = {}

    def gather(self, root_pid: int | None = None) -> list[psutil.Process]:
        """Find the processes of the run, and add them to the set. Return the processes that were
        not in the set before.

        These are the process `root_pid`, the processes with the run's mark in their environment,
        and all their descendants.
        """
        roots: list[psutil.Process] = []
        if root_pid is not None:
            try:
                roots.append(psutil.Process(root_pid))
            except psutil.Error:
                pass
        roots += self._find_marked()
        new = []
        for member in (*roots, *_descendants(roots)):
            if member not in self._members and _alive(member):
                self._members[member] = None
                self._commands[member.pid] = _command(member)
                new.append(member)
        return new

    def alive(self) -> list[psutil.Process]:
        return [member for member in self._members if _alive(member)]

    def signal(self, members: list[psutil.Process], name: str) -> None:
        """Send the signal `name` ("TERM" or "KILL") to these members of the set. Record the signal
        for each member that got it. Members to which the signal cannot be sent are skipped.
        """
        number = signal.SIGKILL if name == "KILL" else signal.SIGTERM
        for member in members:
            try:
                member.send_signal(number)
            except (psutil.Error, OSError):
                continue
            self._members[member] = name

    def note_signalled(self, members: list[psutil.Process], name: str) -> None:
        """Record that these members of the set got the signal `name`, without sending it. This is
        needed when the signal was sent to their whole process group.
        """
        for member in members:
            self._members[member] = name

    def ended(self) -> list[Ended]:
        return [
            Ended(member.pid, self._commands[member.pid], name)
            for member, name in self._members.items()
            if name is not None
        ]


def _is_kernel_thread(process: psutil.Process) -> bool:
    # Linux has hundreds of kernel threads, all without an environment. They are children of
    # kthreadd, whose pid is always 2.
    return sys.platform == "linux" and process.ppid() in (0, 2)


def _descendants(roots: list[psutil.Process]) -> list[psutil.Process]:
    """Return all descendants of the processes `roots`.

    The function lists the processes of the system only once. psutil's `children` would list them
    once for each root.
    """
    if not roots:
        return []
    children: dict[int, list[psutil.Process]] = {}
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            children.setdefault(process.ppid(), []).append(process)
        except (psutil.Error, OSError):
            continue
    descendants: list[psutil.Process] = []
    seen = {root.pid for root in roots}
    pending = list(roots)
    while pending:
        parent = pending.pop()
        for child in children.get(parent.pid, ()):
            if child.pid not in seen and _is_younger(child, parent):
                seen.add(child.pid)
                descendants.append(child)
                pending.append(child)
    return descendants


def _is_younger(child: psutil.Process, parent: psutil.Process) -> bool:
    # A child older than its parent belongs to an earlier process with the same pid.
    try:
        return child.create_time() >= parent.create_time()
    except (psutil.Error, OSError):
        return False


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


def command_of(pid: int) -> str:
    """Return the command line of a process. Return `?` if it cannot be read, for example because
    the process has exited.
    """
    try:
        return _command(psutil.Process(pid))
    except psutil.Error:
        return "?"


def _command(process: psutil.Process) -> str:
    try:
        words = process.cmdline() or [process.name()]
    except (psutil.Error, OSError):
        return "?"
    return " ".join(words)
