"""End all processes of a run: send SIGTERM, wait, and send SIGKILL to those that are left.

Processes that start in the meantime are ended too. All processes of a run have the run's mark (the
text that identifies the run) in their environment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

import anyio
import psutil

from geminids.config.paths import Places, private_dir
from geminids.log import get_logger
from geminids.process.child import Child
from geminids.process.marker import Mark
from geminids.process.tree import Ended, ProcessSet, command_of, marked

__all__ = ["end_found", "end_leftovers", "end_now", "end_processes", "end_tree"]

_log = get_logger("process")

_POLL = 0.015
# Look for new processes for this many seconds: a process that ends may have just started one.
_SWEEP = 0.6


class _Root(Protocol):
    """Interface of the first process of a run: a `Child`, or the process of a short command.
    `exit_code` is None while the process runs.
    """

    pid: int

    @property
    def exit_code(self) -> int | None: ...


def _never() -> bool:
    return False


async def end_processes(
    child: Child, mark: Mark, grace: float, *, keep: bool, hurry: Callable[[], bool] = _never
) -> list[Ended]:
    """End the CLI (`child`) and all other processes of the run that `mark` identifies. Return the
    processes that got a signal.

    The processes get SIGTERM first. They get SIGKILL after `grace` seconds, or as soon as `hurry()`
    returns true. If `keep` is true, only the CLI's process group is ended, and all other processes
    of the run continue.
    """
    if keep:
        ended = await end_child(child, grace, hurry=hurry) if child.exit_code is None else []
        _record_kept(mark)
        return ended
    if child.exit_code is None:
        return await end_tree(child, mark, grace, hurry=hurry)
    return await end_leftovers(mark, grace, hurry=hurry)


def _record_kept(mark: Mark) -> None:
    """If processes of the run are still running, write a note: an empty file with the run's id as
    its name. Processes of a run with a note are not reported as orphans.
    """
    if marked(str(mark)):
        try:
            (private_dir(Places.of().kept) / mark.run_id).touch(mode=0o600)
        except OSError as error:
            # Only log the error: the run itself may have succeeded.
            _log.warning(
                "cannot write the note that run %s left processes running",
                mark.run_id,
                error=error,
            )


async def end_tree(
    child: Child, mark: Mark, grace: float, *, hurry: Callable[[], bool] = _never
) -> list[Ended]:
    """End `child` and all processes of the run that `mark` identifies. Return the processes that
    got a signal.

    The processes get SIGTERM first. They get SIGKILL after `grace` seconds, or as soon as `hurry()`
    returns true.

    The descendants of `child` are collected before the first signal. Later, some could be missed:
    when a process has exited, its children are no longer descendants of `child`.
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
    """End only the process group of `child`. Return a list with one entry, for the child. Return an
    empty list if no signal was sent.

    The shells of tools have their own process groups, so they continue to run. The group gets
    SIGTERM first. It gets SIGKILL after `grace` seconds, or as soon as `hurry()` returns true.
    """
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


def end_now(child: _Root, mark: Mark) -> list[Ended]:
    """Kill `child` and all other processes of the run that `mark` identifies, without a grace
    period. Return the processes that got a signal. This works without an event loop.
    """
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
    """End the processes that a finished run has left running. `mark` identifies the run. Return the
    processes that got a signal.

    The processes get SIGTERM first. They get SIGKILL after `grace` seconds, or as soon as `hurry()`
    returns true.
    """
    return await end_found(lambda: marked(str(mark)), grace, hurry=hurry)


async def end_found(
    find: Callable[[], list[psutil.Process]], grace: float, *, hurry: Callable[[], bool] = _never
) -> list[Ended]:
    """End the processes that `find` returns, and their descendants. Repeat this until `find`
    returns no new process. Return the processes that got a signal.

    The processes get SIGTERM first. They get SIGKILL after `grace` seconds, or as soon as `hurry()`
    returns true.
    """
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
    """Wait until all processes have exited, but at most until the time `until` (a value of
    `time.monotonic`). Stop waiting as soon as `hurry()` returns true.

    When all known processes have exited, search for new processes of the run. If there are some,
    send SIGTERM to them and continue to wait.
    """
    while time.monotonic() < until and not hurry():
        if (child is None or child.exit_code is not None) and not processes.alive():
            new = processes.gather()
            if not new:
                return
            processes.signal(new, "TERM")
        await anyio.sleep(_POLL)


async def _kill_rest(processes: ProcessSet, child: Child | None) -> None:
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
