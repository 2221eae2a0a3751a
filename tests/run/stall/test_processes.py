"""Tests of `inspect_processes` with real processes: some end during the inspection, some cannot be
inspected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psutil
import pytest

from geminids.process.marker import MARKER, new_mark
from geminids.run.stall.processes import inspect_processes
from geminids.run.stall.snapshot import ProcessInfo, ProcessSnapshot, cpu_percent


@pytest.fixture
def start() -> Iterator[Callable[..., int]]:
    """A function that starts a program in its own session and returns its pid.

    The program ends with the test.
    """
    started: list[Any] = []

    def begin(*argv: str, **fields: Any) -> int:
        child = subprocess.Popen(argv, start_new_session=True, **fields)
        started.append(child)
        return child.pid

    yield begin
    for child in started:
        descendants = psutil.Process(child.pid).children(recursive=True)
        os.killpg(child.pid, signal.SIGKILL)
        wait_for(partial(have_ended, descendants))
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        child.wait()


def have_ended(processes: list[psutil.Process]) -> bool:
    """Whether all processes have ended.

    A zombie counts as ended: init may take seconds to collect it.
    """
    try:
        return not any(
            process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes
        )
    except psutil.NoSuchProcess:
        return False  # it ended during the check: check again


def wait_for(condition: Callable[[], Any]) -> Any:
    """Call `condition` until it returns a true value, and return that value."""
    deadline = time.monotonic() + 20
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.02)
    return value


def inspect(pid: int) -> ProcessSnapshot:
    snapshot = inspect_processes(pid)
    assert snapshot is not None
    return snapshot


def test_a_process_and_its_children(start: Callable[..., int]) -> None:
    """A snapshot lists the process and then its descendants with their start times."""
    start_time = time.time()
    pid = start("bash", "-c", "bash -c 'sleep 300; :' ; :")
    snapshot = wait_for(
        lambda: (current := inspect(pid)) and current.processes[-1].command == "sleep 300" and current
    )
    assert [process.command.partition(" ")[0] for process in snapshot.processes] == ["bash", "bash", "sleep"]
    assert all(start_time - 0.1 <= process.born <= time.time() + 0.1 for process in snapshot.processes)
    assert [process.command for process in snapshot.below(snapshot.processes[1].pid)] == [
        "bash -c sleep 300; :",
        "sleep 300",
    ]


def test_a_missing_process_gives_no_snapshot(start: Callable[..., int]) -> None:
    """A missing process and a zombie give no snapshot."""
    assert inspect_processes(2**22 + 1) is None
    pid = start("true")
    wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    assert inspect_processes(pid) is None
    assert cpu_percent(None, None, [1]) is None


def test_a_system_that_shows_no_processes(start: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system that shows no processes, the snapshot of a living process is empty."""
    pid = start("sleep", "300")
    if sys.platform != "linux":
        pytest.skip("only Linux has /proc")
    with monkeypatch.context() as changed:
        changed.setattr(psutil, "PROCFS_PATH", "/repo/no-proc")
        snapshot = inspect_processes(pid, peers=True, shell_since=0.0)
    assert snapshot is not None and (snapshot.processes, snapshot.peers) == ((), None)


def test_processes_that_start_and_end_during_inspection(start: Callable[..., int]) -> None:
    """Inspecting a shell that starts and ends programs all the time never fails."""
    pid = start("bash", "-c", "while :; do /bin/true; done")
    for _ in range(50):
        assert inspect_processes(pid, peers=True) is not None


def test_a_reused_pid() -> None:
    """If a pid was reused, the new process's whole CPU time counts.

    A process that is not in the list does not count.
    """
    before = ProcessSnapshot(1.0, (ProcessInfo(5, 1, 10.0, "a", 9.0),))
    assert cpu_percent(before, ProcessSnapshot(2.0, (ProcessInfo(5, 1, 10.01, "a", 9.5),)), [5]) == 50
    assert cpu_percent(before, ProcessSnapshot(2.0, (ProcessInfo(5, 1, 11.5, "b", 0.2),)), [5]) == 20
    assert cpu_percent(before, ProcessSnapshot(2.0, (ProcessInfo(6, 1, 11.5, "b", 0.2),)), [5]) == 0


def test_hundreds_of_processes(start: Callable[..., int]) -> None:
    """A snapshot lists at most 300 processes, counts the others, and takes less than a second of
    CPU time."""
    pid = start("bash", "-c", "for ((i = 0; i < 400; i++)); do sleep 300 & done; wait")
    snapshot = wait_for(lambda: (current := inspect(pid)) and current.uncounted == 101 and current)
    assert len(snapshot.processes) <= 300
    start_time = time.process_time()
    inspect_processes(pid, peers=True)
    assert time.process_time() - start_time < 1


def test_a_stopped_process(start: Callable[..., int]) -> None:
    """A process that SIGSTOP stopped is reported as stopped, until SIGCONT."""
    pid = start("sleep", "300")
    assert not inspect(pid).processes[0].stopped
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: inspect(pid).processes[0].stopped)
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: not inspect(pid).processes[0].stopped)


def test_strays_carry_the_mark(start: Callable[..., int]) -> None:
    """If a shell has ended, `strays` lists processes that carry the same mark and are not
    descendants of the CLI."""
    mark = str(new_mark("run"))
    environ = {**os.environ, MARKER: f"{os.environ.get(MARKER, '')} {mark}"}
    pid = start("sleep", "300", env=environ)
    stray = start("sleep", "301", env=environ)
    start("sleep", "302")
    snapshot = wait_for(
        lambda: (current := inspect_processes(pid, shell_since=0.0)) and current.strays and current
    )
    assert [(process.pid, process.command) for process in snapshot.strays] == [(stray, "sleep 301")]
    assert inspect(pid).strays == ()


def test_strays_are_not_searched_while_a_shell_runs(start: Callable[..., int]) -> None:
    """Strays are not searched while a shell runs that is younger than `shell_since`.

    An older child, such as an MCP server, is no shell.
    """
    mark = str(new_mark("run"))
    environ = {**os.environ, MARKER: f"{os.environ.get(MARKER, '')} {mark}"}
    pid = start("bash", "-c", "sleep 300; :", env=environ)
    start("sleep", "301", env=environ)
    wait_for(lambda: len(inspect(pid).processes) == 2)
    for since, strays in ((0.0, 0), (time.time() + 60, 1)):
        snapshot = inspect_processes(pid, shell_since=since)
        assert snapshot is not None and len(snapshot.strays) == strays
