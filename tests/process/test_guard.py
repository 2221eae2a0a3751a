"""Tests of the guard with real processes: it ends the runs of a host that was killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from geminids.process import guard
from geminids.process.marker import MARKER, new_mark, with_mark
from geminids.process.tree import marked
from guard_process import guard_of

# Evaluates each line of code that it reads, and prints the result as a line.
DRIVER = """
import ctypes, json, os, sys
from geminids.process.child import spawn
from geminids.process.guard import guard_run, release_run
from geminids.process.marker import new_mark, with_mark
libc, marks, children = ctypes.CDLL(None), {}, []

def begin(name, *argv):
    marks[name] = new_mark(name)
    guard_run(marks[name])
    children.append(spawn(argv, cwd="/", env=with_mark(os.environ, marks[name])))
    return str(marks[name])

for line in sys.stdin:
    print(json.dumps(eval(json.loads(line))), flush=True)
"""
SLEEP = '"sleep", "300"'
OUTER = new_mark("run-outer")
# Ignores TERM, and starts a child in its own session that ignores TERM too.
STUBBORN = """
trap "" TERM
setsid sh -c 'trap "" TERM; : > "$1"; while :; do sleep 0.1; done' sh "$1" &
: > "$2"
while :; do sleep 0.1; done
"""


class Host:
    """A host process that evaluates the code that it receives."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", DRIVER]
        env = with_mark(os.environ, OUTER)
        self.popen = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def evaluate(self, code: str) -> Any:
        assert self.popen.stdin
        assert self.popen.stdout
        self.popen.stdin.write(json.dumps(code) + "\n")
        self.popen.stdin.flush()
        return json.loads(self.popen.stdout.readline())

    def guard(self) -> psutil.Process:
        # Right after exec(), the command line of a process is empty for a moment.
        wait_until(lambda: guard_of(self.popen.pid), 5)
        guard = guard_of(self.popen.pid)
        assert guard is not None
        return guard

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host
    with host.popen:
        host.popen.kill()


def wait_until(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)


def has_ended(process: psutil.Process) -> bool:
    """Whether the process has ended.

    A zombie, which init has not collected yet, counts as ended.
    """
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_killed_host(host: Host, tmp_path: Path) -> None:
    """When the host is killed, all processes of its run end within 2 s, even if they ignore TERM or
    have their own session."""
    ready = [tmp_path / "one", tmp_path / "two"]
    mark = host.evaluate(
        f"begin('run-a', 'sh', '-c', {STUBBORN!r}, 'sh', {str(ready[0])!r}, {str(ready[1])!r})"
    )
    wait_until(lambda: all(file.exists() for file in ready), 10)
    guard = host.guard()
    host.kill()
    wait_until(lambda: not marked(mark), 2)
    wait_until(lambda: has_ended(guard), 5)


def test_a_host_that_exits(host: Host) -> None:
    """When the host exits during its run, the processes of the run end."""
    mark = host.evaluate(f"begin('run-a', {SLEEP})")
    assert marked(mark)
    assert host.popen.stdin
    host.popen.stdin.close()
    wait_until(lambda: not marked(mark), 5)


def test_a_released_run(host: Host) -> None:
    """The guard does not end processes of a released run or of another host."""
    released, active = (
        host.evaluate(f"begin('run-over', {SLEEP})"),
        host.evaluate(f"begin('run-on', {SLEEP})"),
    )
    host.evaluate("release_run(marks['run-over'])")
    other_mark = new_mark("run-of-another-host")
    with subprocess.Popen(["sleep", "300"], env=with_mark(os.environ, other_mark)) as other:
        guard, [survivor] = host.guard(), marked(released)
        host.kill()
        wait_until(lambda: not marked(active), 2)
        wait_until(lambda: has_ended(guard), 5)
        assert not has_ended(survivor)
        assert other.poll() is None
        survivor.kill()
        other.kill()
    wait_until(lambda: has_ended(survivor), 5)


@pytest.mark.parametrize("fork", ["os.fork", "libc.fork"])
def test_a_fork_of_a_dead_host(host: Host, fork: str) -> None:
    """The guard notices the death of its host, even if a fork of the host lives and holds the
    guard's pipe open. Python's own fork closes the pipe in the child; a fork that a C library makes
    does not."""
    mark = host.evaluate(f"begin('run-a', {SLEEP})")
    forked = psutil.Process(host.evaluate(f"{fork}() or libc.pause()"))
    host.kill()
    wait_until(lambda: not marked(mark), 2)
    assert not has_ended(forked)
    forked.kill()
    wait_until(lambda: has_ended(forked), 5)


def test_a_killed_guard_is_replaced(host: Host) -> None:
    """If the guard is killed, the next run starts a new guard, which also protects the earlier
    runs."""
    first = host.evaluate(f"begin('run-a', {SLEEP})")
    released = host.evaluate(f"begin('run-over', {SLEEP})")
    host.evaluate("release_run(marks['run-over'])")
    old, [survivor] = host.guard(), marked(released)
    old.kill()
    wait_until(lambda: has_ended(old), 5)
    second = host.evaluate(f"begin('run-b', {SLEEP})")
    new = host.guard()
    assert new != old
    host.kill()
    wait_until(lambda: not marked(first) and not marked(second), 2)
    wait_until(lambda: has_ended(new), 5)
    assert not has_ended(survivor)
    survivor.kill()
    wait_until(lambda: has_ended(survivor), 5)


def test_the_last_release_starts_no_guard(host: Host) -> None:
    """If the guard is killed, the release of the last run starts no new guard."""
    mark = host.evaluate(f"begin('run-a', {SLEEP})")
    guard, [survivor] = host.guard(), marked(mark)
    guard.kill()
    wait_until(lambda: has_ended(guard), 5)
    host.evaluate("release_run(marks['run-a'])")
    assert guard_of(host.popen.pid) is None
    survivor.kill()
    wait_until(lambda: has_ended(survivor), 5)


def test_a_host_has_one_guard(host: Host) -> None:
    """All runs of a host share one guard, which has an empty environment and so no secrets."""
    host.evaluate(f"begin('run-a', {SLEEP})")
    guard = host.guard()
    host.evaluate(f"begin('run-b', {SLEEP})")
    assert host.guard() == guard
    assert guard.environ() == {}
    host.kill()
    wait_until(lambda: has_ended(guard), 5)


def test_the_guard_ignores_signals(host: Host) -> None:
    """The guard ignores SIGINT, SIGTERM and SIGHUP, and has its own process group, so that it
    outlives its host."""
    mark = host.evaluate(f"begin('run-a', {SLEEP})")
    guard = host.guard()
    assert os.getpgid(guard.pid) != os.getpgid(host.popen.pid)
    # The guard survives the signals: it still ends the run below.
    ignored = "SIGINT", "SIGTERM", "SIGHUP"
    wait_until(lambda: all(_ignores(guard, getattr(signal, name)) for name in ignored), 5)
    for name in ignored:
        guard.send_signal(getattr(signal, name))
    host.kill()
    wait_until(lambda: not marked(mark), 2)


def test_an_inner_run_carries_both_marks(host: Host) -> None:
    """A process of an inner run carries the marks of both runs, the outer first, and ends when the
    inner host dies."""
    mark = host.evaluate(f"begin('run-inner', {SLEEP})")
    [process] = marked(mark)
    assert process.environ()[MARKER].split()[-2:] == [str(OUTER), mark]
    host.kill()
    wait_until(lambda: has_ended(process), 2)


def _ignores(process: psutil.Process, number: signal.Signals) -> bool:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("SigIgn:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def test_no_warning_at_exit() -> None:
    """A host that exits prints no warning about its guard, which still runs for a moment."""
    code = (
        "import gc, psutil\nfrom geminids.process import guard\nfrom geminids.process.marker import new_mark\n"
        "mark = new_mark('run'); guard.guard_run(mark); guard.release_run(mark)\n"
        "print(psutil.Process().children()[0].pid)\n"
        "vars(guard).clear(); gc.collect()\n"  # as Python does at exit, in an unspecified order
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    with contextlib.suppress(psutil.NoSuchProcess):
        guard = psutil.Process(int(done.stdout))
        wait_until(lambda: has_ended(guard), 5)


def test_a_suspended_guard_is_replaced(host: Host) -> None:
    """A suspended guard does not block a run: when its pipe is full, a new guard replaces it and
    protects all runs."""
    mark = host.evaluate(f"begin('run-a', {SLEEP})")
    old = host.guard()
    old.suspend()
    host.evaluate(
        "[(guard_run(mark), release_run(mark)) for mark in map(new_mark, ['run-0123456789abcdef'] * 1000)] and 0"
    )
    new = host.guard()
    assert new != old
    host.kill()
    wait_until(lambda: not marked(mark), 2)
    wait_until(lambda: has_ended(new) and has_ended(old), 5)


def test_no_new_guard_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no guard can start, the run is refused, and the pipe of the dead guard is closed only
    once."""
    mark, process = new_mark("run-a"), subprocess.Popen(["true"])
    process.wait()
    reader, writer = os.pipe()
    dead = cast(Any, process)
    dead.pipe = writer
    monkeypatch.setattr(guard, "_guard", dead)
    monkeypatch.setattr(guard, "_start", lambda: os.open("/nowhere/at/all", os.O_RDONLY))
    with pytest.raises(OSError, match="No such file"):
        guard.guard_run(mark)
    reused = os.open(os.devnull, os.O_RDONLY)
    assert reused == writer
    with pytest.raises(OSError, match="No such file"):
        guard.guard_run(mark)
    os.close(reused)
    os.close(reader)
    guard._live.discard(str(mark))


def test_a_host_without_standard_streams() -> None:
    """In a host without stdin, stdout and stderr, the guard's pipe has a descriptor above 2."""
    code = (
        "import os, sys\nfrom geminids.process import guard\nfrom geminids.process.marker import new_mark\n"
        "output = os.dup(1)\nfor fd in range(3): os.close(fd)\nmark = new_mark('run'); guard.guard_run(mark)\n"
        "os.write(output, str(guard._guard.pipe).encode()); guard.release_run(mark)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(done.stdout) > 2
