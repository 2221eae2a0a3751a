"""Ending a whole tree: ask, wait, kill, and look again until nothing that carries the mark is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from geminids.process.child import Child
from geminids.process.marker import Mark
from geminids.process.tree import Ended, Herd, command_of, marked

if TYPE_CHECKING:
    import psutil

__all__ = ["end_child", "end_found", "end_leftovers", "end_now", "end_tree"]

_POLL = 0.015
# How long we look for what a dying process started in its last moment.
_SWEEP = 0.6


def _never() -> bool:
    return False


async def end_tree(
    child: Child, mark: Mark, grace: float, *, hurry: Callable[[], bool] = _never
) -> list[Ended]:
    """End the child and all that belongs to its run; return what had to be ended.

    The descendants are looked up before the first signal: once a parent is gone, a tool's shell, which lives
    in a session of its own, could be found by its mark alone. `hurry()` true cuts the grace short.
    """
    herd = Herd(lambda: marked(str(mark)))
    first = herd.gather(child.pid)
    group = [member for member in first if _in_group(member.pid, child.pid)]
    if child.signal_group("TERM"):
        herd.note_signalled(group, "TERM")
        herd.signal([member for member in first if member not in group], "TERM")
    else:
        herd.signal(first, "TERM")
    await _until_gone(herd, child, time.monotonic() + grace, hurry)
    await _kill_rest(herd, child)
    return herd.ended()


async def end_child(child: Child, grace: float, *, hurry: Callable[[], bool] = _never) -> list[Ended]:
    """End the child's own group alone: tools' shells, which live in groups of their own, stay."""
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
    """Kill all that belongs to the run, without an event loop and without grace."""
    herd = Herd(lambda: marked(str(mark)))
    until = time.monotonic() + _SWEEP
    while True:
        herd.gather(child.pid if child.exit_code is None else None)
        left = herd.alive()
        if not left and child.exit_code is not None:
            return herd.ended()
        herd.signal(left, "KILL")
        if time.monotonic() > until:
            return herd.ended()
        time.sleep(_POLL)


async def end_leftovers(mark: Mark, grace: float, *, hurry: Callable[[], bool] = _never) -> list[Ended]:
    """End what a run that is over has left behind."""
    return await end_found(lambda: marked(str(mark)), grace, hurry=hurry)


async def end_found(
    find: Callable[[], list[psutil.Process]], grace: float, *, hurry: Callable[[], bool] = _never
) -> list[Ended]:
    """End what `find` finds, and what comes of it, until it finds nothing more."""
    herd = Herd(find)
    found = herd.gather()
    if not found:
        return []
    herd.signal(found, "TERM")
    await _until_gone(herd, None, time.monotonic() + grace, hurry)
    await _kill_rest(herd, None)
    return herd.ended()


async def _until_gone(herd: Herd, child: Child | None, until: float, hurry: Callable[[], bool]) -> None:
    """Wait until all are gone; whoever turns up meanwhile is asked to end too."""
    import anyio

    while time.monotonic() < until and not hurry():
        if (child is None or child.exit_code is not None) and not herd.alive():
            new = herd.gather()
            if not new:
                return
            herd.signal(new, "TERM")
        await anyio.sleep(_POLL)


async def _kill_rest(herd: Herd, child: Child | None) -> None:
    import anyio

    until = time.monotonic() + _SWEEP
    while True:
        herd.gather(child.pid if child and child.exit_code is None else None)
        left = herd.alive()
        if child and child.exit_code is None:
            child.signal_group("KILL")
        elif not left:
            return
        herd.signal(left, "KILL")
        if time.monotonic() > until:
            return
        await anyio.sleep(_POLL)


def _in_group(pid: int, group: int) -> bool:
    import os

    try:
        return os.getpgid(pid) == group
    except OSError:
        return False
