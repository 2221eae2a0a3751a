"""Find out which processes belong to which chat. All processes of a warm process carry the same mark, and
some outlive their tool."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from geminids.process.marker import Mark

if TYPE_CHECKING:
    import psutil

__all__ = ["ShellTracker"]


# The kernel rounds start times down to hundredths of a second.
_CLOCK_TOLERANCE = 0.03
# A tool starts before we are notified. If its call id has no time, assume at most this many seconds.
_NOTICE_DELAY = 0.5
_CALL_TIME = re.compile(r"[-_](\d{13})[-_]\d+\Z")
_LONG_AGO = 3600.0


class ShellTracker:
    """Remembers when the shell tools of each chat ran, and under which process groups.

    A process belongs to a chat if it is in the process group of one of its tools, or descends from a process of the
    chat, or started while only this chat ran a shell tool. Processes in the session of the warm process itself
    (an MCP server, git) are not tools.
    """

    def __init__(self, pid: int, mark: Mark) -> None:
        self._pid = pid
        self._mark = mark
        self._spans: dict[str, list[list[float]]] = {}
        self._open: dict[tuple[str, str], list[float]] = {}
        self._groups: dict[str, set[int]] = {}

    def began(self, chat: str, call_id: str, *, now: bool = False) -> None:
        """A shell tool of this chat starts; `now`: it waited for our permission, so it did not start earlier."""
        span = [time.time() - _CLOCK_TOLERANCE if now else _earliest_start(call_id), float("inf")]
        self._spans.setdefault(chat, []).append(span)
        self._open[chat, call_id] = span

    def ended(self, chat: str, call_id: str) -> None:
        span = self._open.pop((chat, call_id), None)
        if span is not None:
            span[1] = time.time() + _CLOCK_TOLERANCE

    def group(self, chat: str, group: int) -> None:
        """The CLI reported the process group of a tool of this chat."""
        self._groups.setdefault(chat, set()).add(group)

    def forget(self, chat: str) -> None:
        self._groups.pop(chat, None)
        for key in [key for key in self._open if key[0] == chat]:
            del self._open[key]

    def had_any(self, chat: str) -> bool:
        return chat in self._spans

    def of(self, chat: str, since: float = 0.0) -> list[psutil.Process]:
        """The live processes of this chat; with `since`, only those that started after it."""
        own = [process for process, owners in self._owners() if owners == {chat}]
        return [process for process in own if not since or _start_time(process) >= since]

    def running_since(self, chat: str) -> float | None:
        """Start time of the oldest tool that is still running."""
        return min((span[0] for (owner, _), span in self._open.items() if owner == chat), default=None)

    def unclear(self) -> list[psutil.Process]:
        """Processes that may belong to several chats or to none. They end with the warm process."""
        return [process for process, owners in self._owners() if len(owners) != 1]

    def strays(self) -> list[psutil.Process]:
        """Unclear processes that do not descend from the warm process: daemons."""
        return [process for process in self.unclear() if self._pid not in _parents(process)]

    def _owners(self) -> Iterator[tuple[psutil.Process, set[str]]]:
        """Each live process that a tool started, with the chats that it may belong to."""
        owners_of: dict[int, set[str]] = {}
        processes = {process.pid: process for process in _tool_processes(self._pid, self._mark)}
        ancestors = {pid: _parents(process) for pid, process in processes.items()}
        # Parents first: a child of a tool belongs to its chat, even if other chats ran tools at that time.
        for pid in sorted(processes, key=lambda pid: len(ancestors[pid])):
            process = processes[pid]
            parent = next((ancestor for ancestor in ancestors[pid] if ancestor in owners_of), None)
            owners = self._by_group(process) or (owners_of[parent] if parent is not None else set())
            owners_of[pid] = owners or self._by_start_time(process)
            yield process, owners_of[pid]

    def _by_group(self, process: psutil.Process) -> set[str]:
        groups = {_or_none(os.getpgid, process.pid), _or_none(os.getsid, process.pid)}
        return {chat for chat, own in self._groups.items() if own & groups}

    def _by_start_time(self, process: psutil.Process) -> set[str]:
        started = _start_time(process)
        return {
            chat
            for chat, spans in self._spans.items()
            if any(begin <= started <= end for begin, end in spans)
        }


def _earliest_start(call_id: str) -> float:
    """The earliest possible start of a tool. The call id holds the time at which the model made the call."""
    now = time.time()
    match = _CALL_TIME.search(call_id)
    made = int(match[1]) / 1000 if match else 0.0
    return made - _CLOCK_TOLERANCE if now - _LONG_AGO < made <= now else now - _NOTICE_DELAY


def _parents(process: psutil.Process) -> list[int]:
    """The pids of its ancestors, nearest first."""
    import psutil

    try:
        return [parent.pid for parent in process.parents()]
    except (psutil.Error, OSError):
        return []


def _tool_processes(pid: int, mark: Mark) -> Iterable[psutil.Process]:
    from geminids.process.tree import marked

    session = _or_none(os.getsid, pid)
    for process in marked(str(mark)):
        if process.pid != pid and _or_none(os.getsid, process.pid) != session:
            yield process


def _start_time(process: psutil.Process) -> float:
    """Start time by our own clock: psutil adds a boot time that has only a resolution of one second."""
    import psutil

    try:
        started: float = process.create_time()
    except (psutil.Error, OSError):
        return 0.0
    if sys.platform != "linux":
        return started
    return started + time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - psutil.boot_time()


def _or_none(query: Callable[[int], int], pid: int) -> int | None:
    try:
        return query(pid)
    except OSError:
        return None
