"""Whether a process waits for input that nobody gives it. Linux alone can tell."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Literal

from geminids.run.stall.processes import Seen

__all__ = ["waits_on"]

# The number of `read` among the system calls of Linux.
_READ = {"x86_64": "0", "aarch64": "63"}.get(platform.machine())
# Nobody waits for the last of so many.
_MOST = 50


def waits_on(processes: Sequence[Seen]) -> Literal["stdin", "terminal"] | None:
    """Whether one of these reads from a terminal or from its stdin, and gets nothing.

    A pipe that another of them writes to is no stdin that somebody outside would have to fill.
    """
    for one in processes[:_MOST]:
        target, descriptor = _read_from(one.pid)
        if target.startswith(("/dev/pts/", "/dev/tty")):
            return "terminal"
        if descriptor == 0 and not any(
            _writes_to(other.pid, target) for other in processes[:_MOST] if other != one
        ):
            return "stdin"
    return None


def _read_from(pid: int) -> tuple[str, int | None]:
    """What it sits in a `read` of, and by which descriptor."""
    try:
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            number, *arguments = file.read().split()
        if number != _READ or not arguments:
            return "", None
        descriptor = int(arguments[0], 16)
        return os.readlink(f"/proc/{pid}/fd/{descriptor}"), descriptor
    except (OSError, ValueError):
        return "", None


def _writes_to(pid: int, target: str) -> bool:
    for descriptor in (1, 2):
        try:
            if os.readlink(f"/proc/{pid}/fd/{descriptor}") == target:
                return True
        except OSError:
            continue
    return False
