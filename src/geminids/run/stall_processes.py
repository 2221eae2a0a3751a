"""A look at the processes of a run: what they are, how much they work, and what they wait on. Never raises."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
import psutil

__all__ = ["Look", "Seen", "cpu_percent", "look_at", "shell_of", "waits_on"]

# The number of `read` among the system calls of Linux.
_READ = {"x86_64": "0", "aarch64": "63"}.get(platform.machine())
# psutil counts births from a boot time that is known to the second only; the CLI's clock is another one.
_EARLY = 1.5


class Seen(msgspec.Struct, frozen=True):
    """A process as it was: `cpu` in seconds, since it began (`born`, Unix)."""

    pid: int
    parent: int
    born: float
    command: str
    cpu: float


class Look(msgspec.Struct, frozen=True):
    """The CLI first, then all below it; `peers` are those that it has connections to, None where nobody can tell."""

    at: float
    processes: tuple[Seen, ...]
    peers: tuple[str, ...] | None = None

    def below(self, pid: int) -> list[Seen]:
        """This process and its descendants, the eldest first."""
        found = {pid}
        for _ in self.processes:
            more = {one.pid for one in self.processes if one.parent in found} - found
            if not more:
                break
            found |= more
        return sorted((one for one in self.processes if one.pid in found), key=lambda one: one.born)


def look_at(pid: int, *, peers: bool = False) -> Look | None:
    """What is there now, from the CLI's process down; None where it is gone."""
    try:
        root = psutil.Process(pid)
        found = [root, *root.children(recursive=True)]
    except (psutil.Error, OSError):
        return None
    seen = [one for one in map(_seen, found) if one is not None]
    if not seen or seen[0].pid != pid:
        return None
    return Look(time.monotonic(), tuple(seen), _peers(root) if peers else None)


def _seen(process: psutil.Process) -> Seen | None:
    try:
        with process.oneshot():
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            times = process.cpu_times()
            return Seen(
                process.pid,
                process.ppid(),
                process.create_time(),
                " ".join(process.cmdline()) or process.name(),
                times.user + times.system,
            )
    except (psutil.Error, OSError):
        return None  # gone while it was looked at, or another user's


def _peers(process: psutil.Process) -> tuple[str, ...] | None:
    try:
        found = process.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    open_ones = (psutil.CONN_ESTABLISHED, psutil.CONN_SYN_SENT)
    return tuple(f"{one.raddr.ip}:{one.raddr.port}" for one in found if one.raddr and one.status in open_ones)


def cpu_percent(before: Look | None, now: Look | None, pids: Iterable[int]) -> float | None:
    """How much of a core these have used between two looks; None where there is only one."""
    if before is None or now is None or now.at <= before.at:
        return None
    spent = {(one.pid, one.born): one.cpu for one in before.processes}
    wanted = set(pids)
    used = sum(one.cpu - spent.get((one.pid, one.born), 0.0) for one in now.processes if one.pid in wanted)
    return round(max(used, 0.0) / (now.at - before.at) * 100, 1)


def shell_of(look: Look, command: str | None, began: float) -> Seen | None:
    """The shell that runs a tool's command: by its words, else by its birth; None where neither tells."""
    cli = look.processes[0].pid
    tops = [one for one in look.processes if one.parent == cli]
    young = sorted((one for one in tops if one.born >= began - _EARLY), key=lambda one: one.born)
    said = [one for one in young or tops if command and command in one.command]
    return next(iter(said or young), None)


def waits_on(processes: Sequence[Seen]) -> Literal["stdin", "terminal"] | None:
    """Whether one of these reads from a terminal or from its stdin, and gets nothing. Linux alone can tell."""
    for one in processes:
        try:
            with open(f"/proc/{one.pid}/syscall", encoding="ascii") as file:
                number, *arguments = file.read().split()
            if number != _READ or not arguments:
                continue
            descriptor = int(arguments[0], 16)
            target = os.readlink(f"/proc/{one.pid}/fd/{descriptor}")
        except (OSError, ValueError):
            continue
        if target.startswith(("/dev/pts/", "/dev/tty")):
            return "terminal"
        if descriptor == 0:
            return "stdin"
    return None
