"""A look at real processes: what is there, what goes away under the eyes, and what nobody may see."""

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
from geminids.run.stall.processes import ProcessInfo, ProcessSnapshot, cpu_percent, inspect_processes

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tell")


@pytest.fixture
def start() -> Iterator[Callable[..., int]]:
    """Start a program in a session of its own; all of it ends with the test."""
    started: list[Any] = []

    def begin(*argv: str, **fields: Any) -> int:
        child = subprocess.Popen(argv, start_new_session=True, **fields)
        started.append(child)
        return child.pid

    yield begin
    for child in started:
        below = psutil.Process(child.pid).children(recursive=True)
        os.killpg(child.pid, signal.SIGKILL)
        soon(partial(all_gone, below))
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        child.wait()


def all_gone(processes: list[psutil.Process]) -> bool:
    """Ended, whether or not init has collected them, which may take it seconds."""
    try:
        return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)
    except psutil.NoSuchProcess:
        return False  # just now: the next look tells


def soon(ask: Callable[[], Any]) -> Any:
    """What it gives once it gives something."""
    until = time.monotonic() + 20
    while not (found := ask()):
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.02)
    return found


def looked(pid: int) -> ProcessSnapshot:
    found = inspect_processes(pid)
    assert found is not None
    return found


def test_what_is_there(start: Callable[..., int]) -> None:
    """The process, then those below it, born when they were; `below` starts anywhere."""
    began = time.time()
    pid = start("bash", "-c", "bash -c 'sleep 300; :' ; :")
    look = soon(lambda: (seen := looked(pid)) and seen.processes[-1].command == "sleep 300" and seen)
    assert [one.command.partition(" ")[0] for one in look.processes] == ["bash", "bash", "sleep"]
    assert all(began - 0.1 <= one.born <= time.time() + 0.1 for one in look.processes)
    assert [one.command for one in look.below(look.processes[1].pid)] == ["bash -c sleep 300; :", "sleep 300"]


def test_a_look_at_what_is_gone(start: Callable[..., int]) -> None:
    """Nothing is raised for a process that is not there, or that nobody has buried."""
    assert inspect_processes(2**22 + 1) is None
    pid = start("true")
    soon(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    assert inspect_processes(pid) is None
    assert cpu_percent(None, None, [1]) is None


def test_where_nobody_may_look(start: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that shows no processes: that one lives is all that is known of it."""
    pid = start("sleep", "300")
    if sys.platform != "linux":
        pytest.skip("the folder of processes is Linux's")
    with monkeypatch.context() as changed:
        changed.setattr(psutil, "PROCFS_PATH", "/repo/no-proc")
        look = inspect_processes(pid, peers=True, shell_since=0.0)
    assert look is not None and (look.processes, look.peers) == ((), None)


def test_processes_that_come_and_go(start: Callable[..., int]) -> None:
    """Fifty looks at a shell that starts and ends programs all the time."""
    pid = start("bash", "-c", "while :; do /bin/true; done")
    for _ in range(50):
        assert inspect_processes(pid, peers=True) is not None


def test_a_pid_that_was_given_to_another() -> None:
    """What the first has used is not taken from what the second has; a child that is new counts whole."""
    before = ProcessSnapshot(1.0, (ProcessInfo(5, 1, 10.0, "a", 9.0),))
    assert cpu_percent(before, ProcessSnapshot(2.0, (ProcessInfo(5, 1, 10.01, "a", 9.5),)), [5]) == 50
    assert cpu_percent(before, ProcessSnapshot(2.0, (ProcessInfo(5, 1, 11.5, "b", 0.2),)), [5]) == 20
    assert cpu_percent(before, ProcessSnapshot(2.0, (ProcessInfo(6, 1, 11.5, "b", 0.2),)), [5]) == 0


def test_a_herd_of_processes(start: Callable[..., int]) -> None:
    """Some hundreds are looked at, all are counted, and that does not take long."""
    pid = start("bash", "-c", "for ((i = 0; i < 400; i++)); do sleep 300 & done; wait")
    look = soon(lambda: (seen := looked(pid)) and seen.uncounted == 101 and seen)
    assert len(look.processes) <= 300
    began = time.process_time()
    inspect_processes(pid, peers=True)
    assert time.process_time() - began < 1


def test_one_that_a_signal_has_stopped(start: Callable[..., int]) -> None:
    """It is seen, and so is that it goes on."""
    pid = start("sleep", "300")
    assert not looked(pid).processes[0].stopped
    os.kill(pid, signal.SIGSTOP)
    soon(lambda: looked(pid).processes[0].stopped)
    os.kill(pid, signal.SIGCONT)
    soon(lambda: not looked(pid).processes[0].stopped)


def test_what_carries_its_mark_and_is_not_below_it(start: Callable[..., int]) -> None:
    """A shell has ended and left somebody; who is below it, and who has another mark, is none of them."""
    mark = str(new_mark("run"))
    environ = {**os.environ, MARKER: f"{os.environ.get(MARKER, '')} {mark}"}
    pid = start("sleep", "300", env=environ)
    left = start("sleep", "301", env=environ)
    start("sleep", "302")
    look = soon(lambda: (seen := inspect_processes(pid, shell_since=0.0)) and seen.strays and seen)
    assert [(one.pid, one.command) for one in look.strays] == [(left, "sleep 301")]
    assert looked(pid).strays == ()


def test_a_shell_that_is_there_has_left_nobody(start: Callable[..., int]) -> None:
    """Then nobody is looked for, which takes its time; an older child, such as an MCP server, is no shell."""
    mark = str(new_mark("run"))
    environ = {**os.environ, MARKER: f"{os.environ.get(MARKER, '')} {mark}"}
    pid = start("bash", "-c", "sleep 300; :", env=environ)
    start("sleep", "301", env=environ)
    soon(lambda: len(looked(pid).processes) == 2)
    for since, strays in ((0.0, 0), (time.time() + 60, 1)):
        look = inspect_processes(pid, shell_since=since)
        assert look is not None and len(look.strays) == strays
