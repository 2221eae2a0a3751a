"""Tests of the Windows code that needs no Windows."""

from __future__ import annotations

import pytest

from geminids.process.child import taskkill


def test_taskkill_ends_the_tree() -> None:
    """taskkill gets `/T`, because otherwise a `.cmd` shim would leave its node process, and `/F`
    only with `force`."""
    assert taskkill(7, force=False) == ("taskkill", "/PID", "7", "/T")
    assert taskkill(7, force=True) == ("taskkill", "/PID", "7", "/T", "/F")


@pytest.mark.parametrize("pid", [0, -1])
def test_an_invalid_pid_is_refused(pid: int) -> None:
    """A pid of 0 or less is refused: it would mean a process group or all processes."""
    with pytest.raises(ValueError, match="is not a process id"):
        taskkill(pid, force=True)
