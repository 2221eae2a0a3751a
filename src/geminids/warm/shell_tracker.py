"""Which processes belong to which chat of a warm process: all carry the same mark, and some outlive their tool."""

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


# A kernel counts births in hundredths of a second, and rounds them down.
_LATE = 0.03
# We hear of a tool after it began: how long after, on a busy machine, only the time in the call's own id tells.
_EARLY = 0.5
_TIMED = re.compile(r"[-_](\d{13})[-_]\d+\Z")
_LONG_AGO = 3600.0


class ShellTracker:
    """Remembers when the shell tools of each chat ran, and under which process groups.

    A process is a chat's if it is in a group of one of its tools, or comes from a process of this chat, or was born
    while a shell tool of this chat alone was running. Whoever is in the warm process's own session (an MCP server,
    git) is no tool.
    """

    def __init__(self, pid: int, mark: Mark) -> None:
        self._pid = pid
        self._mark = mark
        self._spans: dict[str, list[list[float]]] = {}
        self._open: dict[tuple[str, str], list[float]] = {}
        self._groups: dict[str, set[int]] = {}

    def began(self, chat: str, call_id: str, *, now: bool = False) -> None:
        """A shell tool of this chat begins to run; `now` where it has waited for our word."""
        span = [time.time() - _LATE if now else _not_before(call_id), float("inf")]
        self._spans.setdefault(chat, []).append(span)
        self._open[chat, call_id] = span

    def ended(self, chat: str, call_id: str) -> None:
        span = self._open.pop((chat, call_id), None)
        if span is not None:
            span[1] = time.time() + _LATE

    def group(self, chat: str, group: int) -> None:
        """The CLI has told the process group of a tool of this chat."""
        self._groups.setdefault(chat, set()).add(group)

    def forget(self, chat: str) -> None:
        self._groups.pop(chat, None)
        for key in [key for key in self._open if key[0] == chat]:
            del self._open[key]

    def had_any(self, chat: str) -> bool:
        return chat in self._spans

    def of(self, chat: str, since: float = 0.0) -> list[psutil.Process]:
        """The live processes that are this chat's; with `since`, those that were born after it."""
        own = [process for process, owners in self._judged() if owners == {chat}]
        return [process for process in own if not since or _born(process) >= since]

    def running_since(self, chat: str) -> float | None:
        """When the first of the tools began that are running now."""
        return min((span[0] for (of, _), span in self._open.items() if of == chat), default=None)

    def unclear(self) -> list[psutil.Process]:
        """Those that could be of several chats, or of none that is known: they end with the warm process."""
        return [process for process, owners in self._judged() if len(owners) != 1]

    def strays(self) -> list[psutil.Process]:
        """Those of the unclear ones that no running tool answers for: daemons."""
        return [process for process in self.unclear() if self._pid not in _parents(process)]

    def _judged(self) -> Iterator[tuple[psutil.Process, set[str]]]:
        """Each process that a tool has left or is running, with the chats that it may belong to."""
        judged: dict[int, set[str]] = {}
        found = {process.pid: process for process in _strangers(self._pid, self._mark)}
        above = {pid: _parents(process) for pid, process in found.items()}
        # The eldest first: whoever was started by a tool is of its chat, whatever else was running then.
        for pid in sorted(found, key=lambda pid: len(above[pid])):
            parent = next((one for one in above[pid] if one in judged), None)
            owners = self._by_group(found[pid]) or (judged[parent] if parent is not None else set())
            judged[pid] = owners or self._by_birth(found[pid])
            yield found[pid], judged[pid]

    def _by_group(self, process: psutil.Process) -> set[str]:
        groups = {_or_none(os.getpgid, process.pid), _or_none(os.getsid, process.pid)}
        return {chat for chat, own in self._groups.items() if own & groups}

    def _by_birth(self, process: psutil.Process) -> set[str]:
        born = _born(process)
        return {
            chat for chat, spans in self._spans.items() if any(begin <= born <= end for begin, end in spans)
        }


def _not_before(call_id: str) -> float:
    """When a tool can have begun at the earliest: the CLI names a call when the model makes it."""
    now = time.time()
    timed = _TIMED.search(call_id)
    made = int(timed[1]) / 1000 if timed else 0.0
    return made - _LATE if now - _LONG_AGO < made <= now else now - _EARLY


def _parents(process: psutil.Process) -> list[int]:
    """Its ancestors, the nearest first, up to whoever took it in."""
    import psutil

    try:
        return [one.pid for one in process.parents()]
    except (psutil.Error, OSError):
        return []


def _strangers(pid: int, mark: Mark) -> Iterable[psutil.Process]:
    from geminids.process.tree import marked

    session = _or_none(os.getsid, pid)
    for process in marked(str(mark)):
        if process.pid != pid and _or_none(os.getsid, process.pid) != session:
            yield process


def _born(process: psutil.Process) -> float:
    """When it began, by our own clock: psutil counts from a boot time that is known to the second only."""
    import psutil

    try:
        born: float = process.create_time()
    except (psutil.Error, OSError):
        return 0.0
    if sys.platform != "linux":
        return born
    return born + time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - psutil.boot_time()


def _or_none(ask: Callable[[int], int], pid: int) -> int | None:
    try:
        return ask(pid)
    except OSError:
        return None
