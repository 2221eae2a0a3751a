"""Find out which chat started a process.

The environment of a process does not show this: all processes that a warm process starts have the
same mark (a variable) in their environment. The parent process does not always show it either,
because some processes outlive the tool that started them.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import psutil

from geminids.process.marker import Mark
from geminids.process.tree import marked

__all__ = ["ShellTracker"]


# The kernel rounds the start time of a process down to hundredths of a second.
_CLOCK_TOLERANCE = 0.03
# A tool starts before the CLI reports it. If its call id contains no time, assume that the tool
# started at most this many seconds before the report.
_NOTICE_DELAY = 0.5
_CALL_TIME = re.compile(r"[-_](\d{13})[-_]\d+\Z")
# A time in a call id is not trusted if it is more than this many seconds ago.
_LONG_AGO = 3600.0


class ShellTracker:
    """Records when the shell tools of each chat ran, and in which process groups.

    A process belongs to a chat in three cases: it is in the process group of one of the chat's
    tools, it descends from a process of the chat, or it started while only this chat ran a shell
    tool.

    Processes in the same operating system session as the warm process, such as an MCP server or
    git, are not tools.
    """

    def __init__(self, pid: int, mark: Mark) -> None:
        self._pid = pid
        self._mark = mark
        self._spans: dict[str, list[list[float]]] = {}
        self._open: dict[tuple[str, str], list[float]] = {}
        self._groups: dict[str, set[int]] = {}

    def shell_started(self, chat: str, call_id: str, *, now: bool = False) -> None:
        """Record the start of a shell tool.

        `now` is True if we have just permitted the tool: it then cannot have started earlier than
        now.
        """
        span = [time.time() - _CLOCK_TOLERANCE if now else _earliest_start(call_id), float("inf")]
        self._spans.setdefault(chat, []).append(span)
        self._open[chat, call_id] = span

    def shell_ended(self, chat: str, call_id: str) -> None:
        span = self._open.pop((chat, call_id), None)
        if span is not None:
            span[1] = time.time() + _CLOCK_TOLERANCE

    def add_group(self, chat: str, group: int) -> None:
        """Record a process group that the CLI reported for a tool of this chat."""
        self._groups.setdefault(chat, set()).add(group)

    def forget(self, chat: str) -> None:
        self._groups.pop(chat, None)
        for key in [key for key in self._open if key[0] == chat]:
            del self._open[key]

    def has_run_shells(self, chat: str) -> bool:
        return chat in self._spans

    def processes_of(self, chat: str, since: float = 0.0) -> list[psutil.Process]:
        """Return the running processes that belong only to this chat.

        `since` is a Unix time: processes that started earlier are left out.
        """
        own = [process for process, owners in self._owners() if owners == {chat}]
        return [process for process in own if not since or _start_time(process) >= since]

    def running_since(self, chat: str) -> float | None:
        """Return the start time of the chat's oldest running tool; None if no tool is running."""
        return min((span[0] for (owner, _), span in self._open.items() if owner == chat), default=None)

    def unclear_processes(self) -> list[psutil.Process]:
        """Return the processes that may belong to several chats, or to no chat.

        They are ended together with the warm process.
        """
        return [process for process, owners in self._owners() if len(owners) != 1]

    def stray_processes(self) -> list[psutil.Process]:
        """Return the processes of `unclear_processes` that do not descend from the warm process.

        One example is a daemon that a tool has started.
        """
        return [process for process in self.unclear_processes() if self._pid not in _parents(process)]

    def _owners(self) -> Iterator[tuple[psutil.Process, set[str]]]:
        """Yield each running process that a tool started, with the chats to which it may belong."""
        owners_of: dict[int, set[str]] = {}
        processes = {process.pid: process for process in _tool_processes(self._pid, self._mark)}
        ancestors = {pid: _parents(process) for pid, process in processes.items()}
        # Begin with the parents: a child of a tool belongs to the tool's chat, even if other chats
        # ran tools at that time.
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
    """Return the earliest time at which a tool can have started.

    A call id usually contains the time at which the model called the tool: return that time. If the
    id contains no recent time, return the time half a second before now.
    """
    now = time.time()
    match = _CALL_TIME.search(call_id)
    called_at = int(match[1]) / 1000 if match else 0.0
    return called_at - _CLOCK_TOLERANCE if now - _LONG_AGO < called_at <= now else now - _NOTICE_DELAY


def _parents(process: psutil.Process) -> list[int]:
    """Return the process ids of a process's ancestors, the nearest first."""
    try:
        return [parent.pid for parent in process.parents()]
    except (psutil.Error, OSError):
        return []


def _tool_processes(pid: int, mark: Mark) -> Iterable[psutil.Process]:
    session = _or_none(os.getsid, pid)
    for process in marked(str(mark)):
        if process.pid != pid and _or_none(os.getsid, process.pid) != session:
            yield process


def _start_time(process: psutil.Process) -> float:
    """Return the start time of a process by our own clock, or 0.0 if the process has exited.

    The value of psutil can be off by a second, because psutil rounds the boot time to seconds.
    """
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
