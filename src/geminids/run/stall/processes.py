"""A look at the processes of a run: what they are, how much they work, whom they are connected to. Never raises."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterable

import msgspec
import psutil

from geminids.process.marker import MARKER

__all__ = ["Look", "Seen", "cpu_percent", "look_at"]

# Of a herd of thousands, so many are enough to say what it is; all of them are counted.
_MOST = 300
_SAME = 0.5


class Seen(msgspec.Struct, frozen=True):
    """A process as it was: `cpu` in seconds, since it began (`born`, Unix); `stopped` by a signal."""

    pid: int
    parent: int
    born: float
    command: str
    cpu: float
    stopped: bool = False


class Look(msgspec.Struct, frozen=True):
    """The CLI first, then those below it; none at all where nobody may look.

    `peers` are those that the CLI has connections to, None where nobody can tell. `strays` come from the run too, but
    whoever started them is gone. `uncounted` are those below it that were too many to be looked at.
    """

    at: float
    processes: tuple[Seen, ...]
    peers: tuple[str, ...] | None = None
    strays: tuple[Seen, ...] = ()
    uncounted: int = 0

    def below(self, pid: int) -> list[Seen]:
        """This process and its descendants, the eldest first."""
        found = {pid}
        for _ in self.processes:
            more = {one.pid for one in self.processes if one.parent in found} - found
            if not more:
                break
            found |= more
        return sorted((one for one in self.processes if one.pid in found), key=lambda one: one.born)


def look_at(pid: int, *, peers: bool = False, shell_since: float | None = None) -> Look | None:
    """What is there now, from the CLI's process down; None where it is gone.

    `shell_since`: a shell tool has been running since then (Unix), and where none is seen, strays are looked for.
    """
    try:
        root = psutil.Process(pid)
        found = [root, *root.children(recursive=True)]
        skew = _skew()
        seen = [one for process in found[:_MOST] if (one := _seen(process, skew)) is not None]
    except (psutil.Error, OSError, ValueError):
        return Look(time.monotonic(), ()) if _lives(pid) else None
    if not seen or seen[0].pid != pid:
        return None
    has_shell = shell_since is None or any(one.parent == pid and one.born >= shell_since for one in seen)
    return Look(
        time.monotonic(),
        tuple(seen),
        _peers(root) if peers else None,
        () if has_shell else _strays(root, {one.pid for one in found}, skew),
        max(len(found) - _MOST, 0),
    )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _seen(process: psutil.Process, skew: float) -> Seen | None:
    try:
        with process.oneshot():
            status = process.status()
            if status == psutil.STATUS_ZOMBIE:
                return None
            times = process.cpu_times()
            return Seen(
                process.pid,
                process.ppid(),
                process.create_time() + skew,
                " ".join(process.cmdline()) or process.name(),
                times.user + times.system,
                status == psutil.STATUS_STOPPED,
            )
    except (psutil.Error, OSError):
        return None  # gone while it was looked at, or another user's


def _skew() -> float:
    """What births lack by our own clock: psutil counts from a boot time that is known to the second only."""
    if sys.platform != "linux":
        return 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - psutil.boot_time()


def _strays(root: psutil.Process, known: Collection[int], skew: float) -> tuple[Seen, ...]:
    """Those that carry the marks of this CLI, and are not below it any more; not ourselves, where we carry them too."""
    from geminids.process.tree import marked

    try:
        marks = root.environ().get(MARKER, "").split()
        if not marks:
            return ()
        # The last mark is this run's own: those before it are of whoever has started us.
        found = [one for one in marked(marks[-1]) if one.pid not in known][:_MOST]
    except (psutil.Error, OSError):
        return ()
    return tuple(one for process in found if (one := _seen(process, skew)) is not None)


def _peers(process: psutil.Process) -> tuple[str, ...] | None:
    try:
        found = process.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    open_ones = (psutil.CONN_ESTABLISHED, psutil.CONN_SYN_SENT)
    peers = (f"{one.raddr.ip}:{one.raddr.port}" for one in found if one.raddr and one.status in open_ones)
    return tuple(dict.fromkeys(peers))


def cpu_percent(before: Look | None, now: Look | None, pids: Iterable[int]) -> float | None:
    """How much of a core these have used between two looks; None where there is only one."""
    if before is None or now is None or now.at <= before.at:
        return None
    spent = {one.pid: one for one in before.processes}
    wanted = set(pids)
    used = sum(_spent(spent.get(one.pid), one) for one in now.processes if one.pid in wanted)
    return round(used / (now.at - before.at) * 100, 1)


def _spent(before: Seen | None, now: Seen) -> float:
    # A pid that was given to another meanwhile says nothing of the first; births are reckoned to some hundredths.
    is_same = before is not None and abs(before.born - now.born) < _SAME
    return max(now.cpu - before.cpu, 0.0) if before is not None and is_same else now.cpu
