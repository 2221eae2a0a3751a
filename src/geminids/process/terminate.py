"""End a process tree: TERM, wait, KILL, repeated until no process has the mark."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from geminids.process.child import Child
from geminids.process.marker import Mark
from geminids.process.tree import Ended, ProcessSet, command_of, marked

if TYPE_CHECKING:
    import psutil

__all__ = ["end_child", "end_found", "end_leftovers", "end_now", "end_tree"]

_POLL = 0.015
# Seconds to look for processes that a dying process has just started.
_SWEEP = 0.6


def _never() -> bool:
    return False


async def end_tree(
    child: Child, mark: Mark, grace: float, *, hurry: Callable[[], bool] = _never
) -> list[Ended]:
    """End the child and all processes of its run; return those that got a signal.

    It looks up the descendants before the first signal: a tool's shell has its own session, and
    once its parent is gone only the mark leads to it. If `hurry()` becomes true, the grace period
    ends early.
    """
    processes = ProcessSet(lambda: marked(str(mark)))
    first = processes.gather(child.pid)
    group = [member for member in first if _in_group(member.pid, child.pid)]
    if child.signal_group("TERM"):
        processes.note_signalled(group, "TERM")
        processes.signal([member for member in first if member not in group], "TERM")
    else:
        processes.signal(first, "TERM")
    await _until_gone(processes, child, time.monotonic() + grace, hurry)
    await _kill_rest(processes, child)
    return processes.ended()


async def end_child(child: Child, grace: float, *, hurry: Callable[[], bool] = _never) -> list[Ended]:
    """End only the child's process group; shells of tools have their own and keep running."""
    import anyio

    ended: list[Ended] = []
    until = time.monotonic() + grace
    command = command_of(child.pid)
    for name in ("TERM", "KILL"):
        if child.signal_group(name):
            ended = [Ended(child.pid, command, name)]
        while child.exit_code is None and time.monotonic() < until and not hurry():
            await anyio.sleep(_POLL)
        until = time.monotonic() + _SWEEP
        hurry = _never
    return ended


def end_now(child: Child, mark: Mark) -> list[Ended]:
    """Kill all processes of the run at once, without an event loop."""
    processes = ProcessSet(lambda: marked(str(mark)))
    until = time.monotonic() + _SWEEP
    while True:
        processes.gather(child.pid if child.exit_code is None else None)
        alive = processes.alive()
        if not alive and child.exit_code is not None:
            return processes.ended()
        processes.signal(alive, "KILL")
        if time.monotonic() > until:
            return processes.ended()
        time.sleep(_POLL)


async def end_leftovers(mark: Mark, grace: float, *, hurry: Callable[[], bool] = _never) -> list[Ended]:
    """End the processes that a finished run has left running."""
    return await end_found(lambda: marked(str(mark)), grace, hurry=hurry)


async def end_found(
    find: Callable[[], list[psutil.Process]], grace: float, *, hurry: Callable[[], bool] = _never
) -> list[Ended]:
    """End the processes that `find` returns and their descendants, until it returns none."""
    processes = ProcessSet(find)
    first = processes.gather()
    if not first:
        return []
    processes.signal(first, "TERM")
    await _until_gone(processes, None, time.monotonic() + grace, hurry)
    await _kill_rest(processes, None)
    return processes.ended()


async def _until_gone(
    processes: ProcessSet, child: Child | None, until: float, hurry: Callable[[], bool]
) -> None:
    """Wait until all are gone; send TERM to processes that appear meanwhile."""
    import anyio

    while time.monotonic() < until and not hurry():
        if (child is None or child.exit_code is not None) and not processes.alive():
            new = processes.gather()
            if not new:
                return
            processes.signal(new, "TERM")
        await anyio.sleep(_POLL)


async def _kill_rest(processes: ProcessSet, child: Child | None) -> None:
    import anyio

    until = time.monotonic() + _SWEEP
    while True:
        processes.gather(child.pid if child and child.exit_code is None else None)
        alive = processes.alive()
        if child and child.exit_code is None:
            child.signal_group("KILL")
        elif not alive:
            return
        processes.signal(alive, "KILL")
        if time.monotonic() > until:
            return
        await anyio.sleep(_POLL)


def _in_group(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except OSError:
        return False
