"""The guard: hosts that are killed in the middle of a run, with real processes."""

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

# Does what it is told, one line of code after the other, and answers each with a line.
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
# Ignores TERM, and so does what it starts in a session of its own.
STUBBORN = """
trap "" TERM
setsid sh -c 'trap "" TERM; : > "$1"; while :; do sleep 0.1; done' sh "$1" &
: > "$2"
while :; do sleep 0.1; done
"""


class Host:
    """A host process that is told what to do."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", DRIVER]
        env = with_mark(os.environ, OUTER)
        self.popen = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, code: str) -> Any:
        assert self.popen.stdin
        assert self.popen.stdout
        self.popen.stdin.write(json.dumps(code) + "\n")
        self.popen.stdin.flush()
        return json.loads(self.popen.stdout.readline())

    def guard(self) -> psutil.Process:
        guard = guard_of(self.popen.pid)
        assert guard is not None
        return guard

    def die(self) -> None:
        self.popen.kill()
        self.popen.wait()


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    yield made
    with made.popen:
        made.popen.kill()


def until(true: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.01)


def gone(process: psutil.Process) -> bool:
    """Ended, whether or not init has collected it yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_host_killed(host: Host, tmp_path: Path) -> None:
    """When the host is killed, all of its run is gone within 2 s, TERM or not, session or not."""
    ready = [tmp_path / "one", tmp_path / "two"]
    mark = host.do(f"begin('run-a', 'sh', '-c', {STUBBORN!r}, 'sh', {str(ready[0])!r}, {str(ready[1])!r})")
    until(lambda: all(file.exists() for file in ready), 10)
    guard = host.guard()
    host.die()
    until(lambda: not marked(mark), 2)
    until(lambda: gone(guard), 5)


def test_host_leaves(host: Host) -> None:
    """A host that ends without a word, its run still on, is a dead host too."""
    mark = host.do(f"begin('run-a', {SLEEP})")
    assert marked(mark)
    assert host.popen.stdin
    host.popen.stdin.close()
    until(lambda: not marked(mark), 5)


def test_released(host: Host) -> None:
    """A run that was released stays as it is, and so does all that carries another mark."""
    over, on = host.do(f"begin('run-over', {SLEEP})"), host.do(f"begin('run-on', {SLEEP})")
    host.do("release_run(marks['run-over'])")
    mine = new_mark("run-of-another-host")
    with subprocess.Popen(["sleep", "300"], env=with_mark(os.environ, mine)) as other:
        guard, [left] = host.guard(), marked(over)
        host.die()
        until(lambda: not marked(on), 2)
        until(lambda: gone(guard), 5)
        assert not gone(left)
        assert other.poll() is None
        left.kill()
        other.kill()
    until(lambda: gone(left), 5)


@pytest.mark.parametrize("fork", ["os.fork", "libc.fork"])
def test_fork(host: Host, fork: str) -> None:
    """A fork of the host that lives on does not hide its death, though it may hold the guard's pipe.

    Python's own fork closes the pipe in the child; one that is made behind its back (by a library) does not.
    """
    mark = host.do(f"begin('run-a', {SLEEP})")
    forked = psutil.Process(host.do(f"{fork}() or libc.pause()"))
    host.die()
    until(lambda: not marked(mark), 2)
    assert not gone(forked)
    forked.kill()
    until(lambda: gone(forked), 5)


def test_guard_killed(host: Host) -> None:
    """Where the guard was killed, the next run starts a new one, which knows of the runs before it."""
    first = host.do(f"begin('run-a', {SLEEP})")
    over = host.do(f"begin('run-over', {SLEEP})")
    host.do("release_run(marks['run-over'])")
    old, [left] = host.guard(), marked(over)
    old.kill()
    until(lambda: gone(old), 5)
    second = host.do(f"begin('run-b', {SLEEP})")
    new = host.guard()
    assert new != old
    host.die()
    until(lambda: not marked(first) and not marked(second), 2)
    until(lambda: gone(new), 5)
    assert not gone(left)
    left.kill()
    until(lambda: gone(left), 5)


def test_release_without_guard(host: Host) -> None:
    """Where the guard was killed, the end of the last run starts no new one."""
    mark = host.do(f"begin('run-a', {SLEEP})")
    guard, [left] = host.guard(), marked(mark)
    guard.kill()
    until(lambda: gone(guard), 5)
    host.do("release_run(marks['run-a'])")
    assert guard_of(host.popen.pid) is None
    left.kill()
    until(lambda: gone(left), 5)


def test_one_guard(host: Host) -> None:
    """There is one guard a host, however many runs; it has no variables, and none of the host's secrets."""
    host.do(f"begin('run-a', {SLEEP})")
    guard = host.guard()
    host.do(f"begin('run-b', {SLEEP})")
    assert host.guard() == guard
    assert guard.environ() == {}
    host.die()
    until(lambda: gone(guard), 5)


def test_signals(host: Host) -> None:
    """What ends a whole group or a terminal does not end the guard before its host."""
    mark = host.do(f"begin('run-a', {SLEEP})")
    guard = host.guard()
    assert os.getpgid(guard.pid) != os.getpgid(host.popen.pid)
    # It answers by living on; the lines it reads afterwards show that it has got the signals.
    ignored = "SIGINT", "SIGTERM", "SIGHUP"
    until(lambda: all(_ignores(guard, getattr(signal, name)) for name in ignored), 5)
    for name in ignored:
        guard.send_signal(getattr(signal, name))
    host.die()
    until(lambda: not marked(mark), 2)


def test_run_within_a_run(host: Host) -> None:
    """A run within a run carries both marks, the outer first; the death of the inner host ends it."""
    mark = host.do(f"begin('run-inner', {SLEEP})")
    [process] = marked(mark)
    assert process.environ()[MARKER].split()[-2:] == [str(OUTER), mark]
    host.die()
    until(lambda: gone(process), 2)


def _ignores(process: psutil.Process, number: signal.Signals) -> bool:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("SigIgn:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def test_no_warning_at_the_end() -> None:
    """The guard outlives its host by a moment, on purpose: Python has nothing to complain of when it drops it."""
    code = (
        "import gc, psutil\nfrom geminids.process import guard\nfrom geminids.process.marker import new_mark\n"
        "mark = new_mark('run'); guard.guard_run(mark); guard.release_run(mark)\n"
        "print(psutil.Process().children()[0].pid)\n"
        "vars(guard).clear(); gc.collect()\n"  # as Python does at its end, in an order that nobody knows
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    with contextlib.suppress(psutil.NoSuchProcess):
        guard = psutil.Process(int(done.stdout))
        until(lambda: gone(guard), 5)


def test_guard_stopped(host: Host) -> None:
    """A guard that was stopped holds up no run: when its pipe is full, another one takes its place and knows all."""
    mark = host.do(f"begin('run-a', {SLEEP})")
    old = host.guard()
    old.suspend()
    host.do(
        "[(guard_run(mark), release_run(mark)) for mark in map(new_mark, ['run-0123456789abcdef'] * 1000)] and 0"
    )
    new = host.guard()
    assert new != old
    host.die()
    until(lambda: not marked(mark), 2)
    until(lambda: gone(new) and gone(old), 5)


def test_no_new_guard_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is refused, and the pipe of the dead one is closed once: its number may be somebody's by now."""
    mark, made = new_mark("run-a"), subprocess.Popen(["true"])
    made.wait()
    theirs, ours = os.pipe()
    dead = cast(Any, made)
    dead.pipe = ours
    monkeypatch.setattr(guard, "_guard", dead)
    monkeypatch.setattr(guard, "_start", lambda: os.open("/nowhere/at/all", os.O_RDONLY))
    with pytest.raises(OSError, match="No such file"):
        guard.guard_run(mark)
    somebodys = os.open(os.devnull, os.O_RDONLY)
    assert somebodys == ours
    with pytest.raises(OSError, match="No such file"):
        guard.guard_run(mark)
    os.close(somebodys)
    os.close(theirs)
    guard._live.discard(str(mark))


def test_a_host_without_its_own_three() -> None:
    """A host that has closed 0, 1 and 2 has the guard's pipe behind them: whoever opens these closes no pipe."""
    code = (
        "import os, sys\nfrom geminids.process import guard\nfrom geminids.process.marker import new_mark\n"
        "told = os.dup(1)\nfor fd in range(3): os.close(fd)\nmark = new_mark('run'); guard.guard_run(mark)\n"
        "os.write(told, str(guard._guard.pipe).encode()); guard.release_run(mark)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(done.stdout) > 2
