"""Which processes belong to a run, and how they are ended: descendants, groups, and all that is marked."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import psutil

from geminids.process.marker import MARKER

__all__ = ["Ended", "Herd", "all_marked", "command_of", "marked", "marker_of"]

# For a moment within exec a process has neither words nor an environment: measured, one look in eleven at a
# program that does nothing but exec finds it so. Such a look is repeated.
_LOOKS = 12
_PAUSE = 0.0005


class Ended(msgspec.Struct, frozen=True):
    """A process that was ended, and the last signal it got."""

    pid: int
    command: str
    signal: str


def all_marked() -> Iterator[tuple[psutil.Process, str]]:
    """Every live process of ours to see that carries a mark, with the value of its marker variable."""
    me = os.getpid()
    for pid in psutil.pids():
        if pid == me:
            continue
        try:
            process = psutil.Process(pid)
            value = marker_of(process)
        except (psutil.Error, OSError):
            continue  # gone, a zombie, or another user's
        if value:
            yield process, value


def marker_of(process: psutil.Process) -> str | None:
    """The value of a process's marker variable; raises what psutil raises."""
    for _ in range(_LOOKS):
        environ = process.environ()
        if environ or process.cmdline():
            return (environ or process.environ()).get(MARKER)
        if _in_kernel(process):
            break
        time.sleep(_PAUSE)
    return None


def marked(mark: str) -> list[psutil.Process]:
    """The live processes that carry this mark."""
    return [process for process, value in all_marked() if mark in value.split()]


class Herd:
    """The processes of one run that are to be ended, gathered and counted once each.

    A psutil process knows its start time, so a pid that was given to a stranger meanwhile gets no signal.
    """

    def __init__(self, find_marked: Callable[[], list[psutil.Process]]) -> None:
        self._find_marked = find_marked
        self._members: dict[psutil.Process, str | None] = {}
        self._commands: dict[int, str] = {}

    def gather(self, root_pid: int | None = None) -> list[psutil.Process]:
        """Add the root with its descendants and all that is marked, and their descendants; return new ones."""
        found: list[psutil.Process] = []
        if root_pid is not None:
            try:
                found.append(psutil.Process(root_pid))
            except psutil.Error:
                pass
        found += self._find_marked()
        new = []
        for member in (*found, *_descendants(found)):
            if member not in self._members and _alive(member):
                self._members[member] = None
                self._commands[member.pid] = _command(member)
                new.append(member)
        return new

    def alive(self) -> list[psutil.Process]:
        return [member for member in self._members if _alive(member)]

    def signal(self, members: list[psutil.Process], name: str) -> None:
        """Send TERM or KILL to the members, and remember it."""
        number = signal.SIGKILL if name == "KILL" else signal.SIGTERM
        for member in members:
            try:
                member.send_signal(number)
            except (psutil.Error, OSError):
                continue
            self._members[member] = name

    def note_signalled(self, members: list[psutil.Process], name: str) -> None:
        """Remember a signal that went to the whole group at once."""
        for member in members:
            self._members[member] = name

    def ended(self) -> list[Ended]:
        return [
            Ended(member.pid, self._commands[member.pid], name)
            for member, name in self._members.items()
            if name is not None
        ]


def _in_kernel(process: psutil.Process) -> bool:
    # Linux has hundreds of these, all without an environment: children of kthreadd, which is always 2.
    return sys.platform == "linux" and process.ppid() in (0, 2)


def _descendants(roots: list[psutil.Process]) -> list[psutil.Process]:
    """All below these, from one look at the system: psutil's own `children` takes one for each of them."""
    if not roots:
        return []
    children: dict[int, list[psutil.Process]] = {}
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            children.setdefault(process.ppid(), []).append(process)
        except (psutil.Error, OSError):
            continue
    found: list[psutil.Process] = []
    seen = {root.pid for root in roots}
    ahead = list(roots)
    while ahead:
        parent = ahead.pop()
        for child in children.get(parent.pid, ()):
            if child.pid not in seen and _is_younger(child, parent):
                seen.add(child.pid)
                found.append(child)
                ahead.append(child)
    return found


def _is_younger(child: psutil.Process, parent: psutil.Process) -> bool:
    # A child that is older than its parent belongs to another process, which had that pid before.
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
    """The words of a process; `?` where it has none any more."""
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
