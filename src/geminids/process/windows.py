"""What Windows has in place of signals to a group. Runs themselves need Linux or macOS so far."""

from __future__ import annotations

__all__ = ["taskkill"]


def taskkill(pid: int, *, force: bool) -> tuple[str, ...]:
    """The command that ends a process and its tree: the `.cmd` shim alone would leave its node behind.

    >>> taskkill(42, force=True)
    ('taskkill', '/PID', '42', '/T', '/F')
    """
    if pid <= 0:
        raise ValueError(f"{pid} is no process id")
    return ("taskkill", "/PID", str(pid), "/T", *(("/F",) if force else ()))
