"""What Windows needs in place of signals and groups: pure parts, tested; runs themselves need Linux or macOS."""

from __future__ import annotations

__all__ = ["CREATE_NEW_PROCESS_GROUP", "taskkill"]

# subprocess.CREATE_NEW_PROCESS_GROUP, which exists on Windows only.
CREATE_NEW_PROCESS_GROUP = 0x00000200


def taskkill(pid: int, *, force: bool) -> tuple[str, ...]:
    """The command that ends a process and its tree: the `.cmd` shim alone would leave its node behind.

    >>> taskkill(42, force=True)
    ('taskkill', '/PID', '42', '/T', '/F')
    """
    if pid <= 0:
        raise ValueError(f"{pid} is no process id")
    return ("taskkill", "/PID", str(pid), "/T", *(("/F",) if force else ()))
