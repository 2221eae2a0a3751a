"""The pure parts for Windows."""

from __future__ import annotations

import pytest

from geminids.process.child import taskkill


def test_taskkill_ends_the_tree() -> None:
    """`/T`: a `.cmd` shim alone would leave its node behind; `/F` only when asking was not enough."""
    assert taskkill(7, force=False) == ("taskkill", "/PID", "7", "/T")
    assert taskkill(7, force=True) == ("taskkill", "/PID", "7", "/T", "/F")


@pytest.mark.parametrize("pid", [0, -1])
def test_only_a_process_can_be_ended(pid: int) -> None:
    """Never a group, never everything."""
    with pytest.raises(ValueError, match="is not a process id"):
        taskkill(pid, force=True)
