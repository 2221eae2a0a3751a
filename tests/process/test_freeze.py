"""A child that is frozen does nothing more, and is ended all the same, with what it has started."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import psutil
import pytest

from geminids.process.child import Child, spawn
from geminids.process.marker import Mark, new_mark, with_mark
from geminids.process.stop import end_tree

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no process is frozen there")

# In a session of its own and without the mark; it leaves word when it is asked to go.
_SHELL = 'trap "echo > asked; exit" TERM; echo > up; while :; do sleep 0.01; done'
_COUNTING = "while :; do echo >> counts; sleep 0.005; done"

# A shell that waits for a child of its own to begin is not called stopped: the child is, and it waits for it.
_FROZEN = (psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP)


def await_that(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.fixture
def started(tmp_path: Path) -> tuple[Child, Mark]:
    """A child that counts in a file, with a tool's shell."""
    mark = new_mark("run-freeze")
    command = f"env -i PATH=$PATH setsid sh -c '{_SHELL}' & {_COUNTING}"
    child = spawn(["sh", "-c", command], cwd=str(tmp_path), env=with_mark(os.environ, mark))
    for name in ("up", "counts"):
        await_that((tmp_path / name).exists)
    return child, mark


def test_it_goes_no_further_and_is_killed(tmp_path: Path, started: tuple[Child, Mark]) -> None:
    """Not one step after the freeze; it is killed without a word, and the shell that it has started is asked."""
    child, mark = started
    process = psutil.Process(child.pid)
    below = process.children(recursive=True)
    assert child.freeze()
    await_that(lambda: process.status() in _FROZEN)
    size = (tmp_path / "counts").stat().st_size
    ended = anyio.run(partial(end_tree, child, mark, 5.0, at_once=True))
    assert (tmp_path / "counts").stat().st_size == size
    assert child.exit_code == -9
    assert (child.pid, "KILL") in [(one.pid, one.signal) for one in ended]
    assert (tmp_path / "asked").exists()
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in below)
    child.close()


def test_one_that_is_gone_cannot_be_frozen(started: tuple[Child, Mark]) -> None:
    """Nor is anybody else, who may have its pid by now."""
    child, mark = started
    anyio.run(end_tree, child, mark, 5.0)
    assert child.freeze() is False
    child.close()
