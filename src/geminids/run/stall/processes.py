"""Inspect the processes of a run: commands, CPU time and connections.

The functions never raise an error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection

import anyio
import psutil

from geminids.log import get_logger
from geminids.process.marker import MARKER
from geminids.process.tree import marked
from geminids.run.stall.snapshot import EARLY, ProcessInfo, ProcessSnapshot, Situation, needs_look

__all__ = ["inspect_processes", "inspect_twice"]

_log = get_logger("run")

# At most this many processes are inspected; the others are only counted.
_MOST = 300
# Two inspections must be at least this many seconds apart to compute a CPU percentage.
_CLOSEST = 0.1


async def inspect_twice(
    situation: Situation, seconds: float
) -> tuple[ProcessSnapshot | None, ProcessSnapshot | None, Collection[int] | None]:
    """Inspect the processes now and after `seconds`. Return both inspections and the process ids
    of this chat's own tools.

    The process ids are None if no other chat uses the same CLI process, because all tools then
    belong to this chat. If the run waits for permission, or if the process id of the CLI is
    unknown, the function inspects nothing: it only waits, and all three values are None.
    """
    until = time.monotonic() + seconds
    if not needs_look(situation) or situation.pid is None:
        await anyio.sleep(max(seconds, 0.0))
        return None, None, None
    # Use a thread, because inspecting many processes takes milliseconds.
    before, _ = await anyio.to_thread.run_sync(_inspect, situation, False, abandon_on_cancel=True)
    await anyio.sleep(max(until - time.monotonic(), _CLOSEST))
    look, own = await anyio.to_thread.run_sync(_inspect, situation, True, abandon_on_cancel=True)
    return before, look, own


def _inspect(situation: Situation, closely: bool) -> tuple[ProcessSnapshot | None, Collection[int] | None]:
    """Inspect the processes of the run. Return the inspection and, if `closely` is True, the
    process ids of this chat's tools.

    The process ids are None if `closely` is False, or if no other chat uses the same CLI process.
    If `closely` is True, the inspection also lists open connections.
    """
    assert situation.pid is not None
    since = situation.shells[0].at / 1000 - EARLY if closely and situation.shells else None
    look = inspect_processes(situation.pid, peers=closely, shell_since=since)
    if situation.own is None or not closely:
        return look, None
    try:
        return look, situation.own()
    except Exception as error:
        _log.debug("the tracked shells changed while they were read", error=error)
        return look, ()  # it is unknown which processes belong to this chat


def inspect_processes(
    pid: int, *, peers: bool = False, shell_since: float | None = None
) -> ProcessSnapshot | None:
    """Inspect the CLI's process and its descendants. Return None if the CLI has exited.

    If `peers` is True, the open connections are listed too. `shell_since` is the time (Unix) at
    which a shell tool started, or None. If no shell that started after this time is found,
    processes of the run that are not descendants of the CLI are listed too.
    """
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
        skew = _skew()
        seen = [info for process in tree[:_MOST] if (info := _info(process, skew)) is not None]
    except (psutil.Error, OSError, ValueError):
        return ProcessSnapshot(time.monotonic(), ()) if _lives(pid) else None
    if not seen or seen[0].pid != pid:
        return None
    has_shell = shell_since is None or any(info.parent == pid and info.born >= shell_since for info in seen)
    return ProcessSnapshot(
        time.monotonic(),
        tuple(seen),
        _peers(root) if peers else None,
        () if has_shell else _strays(root, {process.pid for process in tree}, skew),
        max(len(tree) - _MOST, 0),
    )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _info(process: psutil.Process, skew: float) -> ProcessInfo | None:
    try:
        with process.oneshot():
            status = process.status()
            if status == psutil.STATUS_ZOMBIE:
                return None
            times = process.cpu_times()
            return ProcessInfo(
                process.pid,
                process.ppid(),
                process.create_time() + skew,
                " ".join(process.cmdline()) or process.name(),
                times.user + times.system,
                status == psutil.STATUS_STOPPED,
            )
    except (psutil.Error, OSError):
        return None  # the process has exited, or belongs to another user


def _skew() -> float:
    """Return the seconds to add to the start times that psutil reports.

    These times are inexact, because psutil rounds the boot time to a second.
    """
    if sys.platform != "linux":
        return 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - psutil.boot_time()


def _strays(root: psutil.Process, known: Collection[int], skew: float) -> tuple[ProcessInfo, ...]:
    """Return the processes of this run that are no longer descendants of the CLI.

    These processes are found by their mark: the value of a variable in the environment of all
    processes of the run. `known` are process ids to omit.
    """
    try:
        marks = root.environ().get(MARKER, "").split()
        if not marks:
            return ()
        # The last mark is that of this run. The marks before it belong to outer runs: a tool of an
        # outer run started this run.
        strays = [process for process in marked(marks[-1]) if process.pid not in known][:_MOST]
    except (psutil.Error, OSError):
        return ()
    return tuple(info for process in strays if (info := _info(process, skew)) is not None)


def _peers(process: psutil.Process) -> tuple[str, ...] | None:
    try:
        connections = process.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    open_states = (psutil.CONN_ESTABLISHED, psutil.CONN_SYN_SENT)
    peers = (
        f"{connection.raddr.ip}:{connection.raddr.port}"
        for connection in connections
        if connection.raddr and connection.status in open_states
    )
    return tuple(dict.fromkeys(peers))
