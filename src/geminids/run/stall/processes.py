"""Inspect the processes of a run: commands, CPU time, connections. Never raises."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterable

import msgspec
import psutil

from geminids.process.marker import MARKER

__all__ = ["ProcessInfo", "ProcessSnapshot", "cpu_percent", "inspect_processes"]

# Inspect at most so many processes; the rest is only counted.
_MOST = 300
# Birth times are exact to some hundredths of a second; a smaller difference means the same process.
_SAME = 0.5


class ProcessInfo(msgspec.Struct, frozen=True):
    """A process at one time: start (`born`, Unix), CPU seconds; `stopped`: by a signal."""

    pid: int
    parent: int
    born: float
    command: str
    cpu: float
    stopped: bool = False


class ProcessSnapshot(msgspec.Struct, frozen=True):
    """The CLI and its descendants at one time; empty if they cannot be inspected.

    `peers` are the addresses that the CLI is connected to, None if unknown. `strays` are processes
    of the run whose parent has exited. `uncounted` is the number of descendants beyond the limit,
    which were not inspected.
    """

    at: float
    processes: tuple[ProcessInfo, ...]
    peers: tuple[str, ...] | None = None
    strays: tuple[ProcessInfo, ...] = ()
    uncounted: int = 0

    def below(self, pid: int) -> list[ProcessInfo]:
        """This process and its descendants, the oldest first."""
        pids = {pid}
        for _ in self.processes:
            more = {process.pid for process in self.processes if process.parent in pids} - pids
            if not more:
                break
            pids |= more
        return sorted(
            (process for process in self.processes if process.pid in pids), key=lambda process: process.born
        )


def inspect_processes(
    pid: int, *, peers: bool = False, shell_since: float | None = None
) -> ProcessSnapshot | None:
    """Inspect the CLI's process and its descendants; None if the CLI has exited.

    `shell_since`: a shell tool runs since then (Unix). If its shell is not found, look for strays.
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
        return None  # it exited meanwhile, or belongs to another user


def _skew() -> float:
    """The correction of psutil's birth times: its boot time is rounded to a second."""
    if sys.platform != "linux":
        return 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - psutil.boot_time()


def _strays(root: psutil.Process, known: Collection[int], skew: float) -> tuple[ProcessInfo, ...]:
    """Processes that have the mark of this run but are no longer descendants of the CLI."""
    from geminids.process.tree import marked

    try:
        marks = root.environ().get(MARKER, "").split()
        if not marks:
            return ()
        # The last mark is this run's own; those before it belong to the runs that this one is
        # nested in.
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


def cpu_percent(
    before: ProcessSnapshot | None, now: ProcessSnapshot | None, pids: Iterable[int]
) -> float | None:
    """CPU percentage of these processes between `before` and `now`; None without `before`."""
    if before is None or now is None or now.at <= before.at:
        return None
    earlier = {process.pid: process for process in before.processes}
    chosen = set(pids)
    used = sum(
        _spent(earlier.get(process.pid), process) for process in now.processes if process.pid in chosen
    )
    return round(used / (now.at - before.at) * 100, 1)


def _spent(before: ProcessInfo | None, now: ProcessInfo) -> float:
    # The system may have reused the pid: compare the birth times.
    is_same = before is not None and abs(before.born - now.born) < _SAME
    return max(now.cpu - before.cpu, 0.0) if before is not None and is_same else now.cpu
