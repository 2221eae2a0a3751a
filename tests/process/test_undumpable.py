"""A host that is closed to other processes of its user; tried without root's rights, which are above that."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from geminids.process.marker import MARKER
from powerless import powerless

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can do it")

SOURCE = str(Path(__file__).parents[2] / "src")
SECRET = "a-secret-of-the-host"

# A host that is closed or not; a child of the same user then looks into it.
HOST = """
import ctypes, json, os, subprocess, sys
from geminids.process import hardening
def is_protected():
    return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0  # PR_GET_DUMPABLE
how = sys.argv[1]
told = {"open_before": not is_protected()}
if how == "command":
    hardening.protect_command()
elif how == "host":
    told["can"] = hardening.protect_host()
told["protected"] = is_protected()
LOOK = '''
import json, os, sys
def tried(what):
    try:
        what()
        return "readable"
    except PermissionError:
        return "denied"
pid = os.getppid()
base = f"/proc/{pid}/"
print(json.dumps({
    "environ": tried(lambda: open(base + "environ").read()),
    "mem": tried(lambda: open(base + "mem", "rb")),
    "fd": tried(lambda: [os.readlink(base + "fd/" + fd) for fd in os.listdir(base + "fd")]),
    "maps": tried(lambda: open(base + "maps").read()),
    "stat": tried(lambda: open(base + "stat").read()),
    "cmdline": tried(lambda: open(base + "cmdline").read()),
}))
'''
told["seen"] = json.loads(subprocess.check_output([sys.executable, "-IS", "-c", LOOK], env={}))
"""


def _host(how: str, more: str = "", **env: str) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if name != MARKER}
    done = subprocess.run(
        powerless([sys.executable, "-c", HOST + more + "\nprint(json.dumps(told))", how]),
        env={**kept, "PYTHONPATH": SOURCE, "A_SECRET_KEY": SECRET, **env},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["open_before"]
    return told


def test_an_open_host_shows_its_environment() -> None:
    """What is to be closed is open otherwise: a child reads environment, files and memory of its host."""
    told = _host("")
    assert not told["protected"]
    assert told["seen"]["environ"] == told["seen"]["fd"] == told["seen"]["maps"] == "readable"


@pytest.mark.parametrize("how", ["host", "command"])
def test_a_protected_host_shows_nothing_but_that_it_is_there(how: str) -> None:
    """Environment, memory and open files are closed; `ps` still sees it."""
    told = _host(how)
    assert told["protected"]
    seen = told["seen"]
    assert [seen[name] for name in ("environ", "mem", "fd", "maps")] == ["denied"] * 4
    assert [seen[name] for name in ("stat", "cmdline")] == ["readable"] * 2


def test_a_command_within_a_run_stays_open() -> None:
    """The host of that run has to find the mark in it; and it has no key that the run's tools did not have."""
    told = _host("command", **{MARKER: "1:2:3:run-outer"})
    assert not told["protected"]
    assert told["seen"]["environ"] == "readable"


GUARDED = """
import psutil
from geminids.process.child import spawn
from geminids.process.guard import guard_run, release_run
from geminids.process.marker import new_mark, with_mark
from geminids.process.tree import marked
mark = new_mark("run-x")
guard_run(mark)
child = spawn(["sleep", "60"], cwd="/", env=with_mark({"PATH": os.environ["PATH"]}, mark))
me = psutil.Process()
told["me"] = [me.name() != "", me.create_time() > 0, me.num_fds() > 0, me.memory_info().rss > 0]
[guard] = [p for p in me.children() if p.pid != child.pid]
told["marked"] = [p.pid for p in marked(str(mark))] == [child.pid]
told["alive"] = mark.host_is_alive()
told["guard_environ"] = guard.environ()
told["guard_words"] = guard.cmdline()
child.signal_group("KILL")
child._popen.wait()
release_run(mark)
"""


def test_our_own_work_goes_on_in_a_protected_host() -> None:
    """psutil on ourselves, the mark of a child and the guard do as before."""
    told = _host("host", GUARDED)
    assert told["protected"]
    assert told["me"] == [True] * 4
    assert told["marked"]
    assert told["alive"]


def test_the_guard_carries_no_secret() -> None:
    """It lives as long as its host, for the same user, and is open: there is nothing in it."""
    told = _host("host", GUARDED)
    assert told["guard_environ"] == {}
    assert SECRET not in str(told["guard_words"])


DIES = """
mark = new_mark("run-dies")
guard_run(mark)
child = spawn(["sleep", "60"], cwd="/", env=with_mark({"PATH": os.environ["PATH"]}, mark))
print(json.dumps({**told, "child": child.pid}), flush=True)
os.kill(os.getpid(), 9)
"""


def test_the_guard_of_a_protected_host_does_its_work() -> None:
    """A protected host that is killed leaves nothing behind."""
    kept = {name: value for name, value in os.environ.items() if name != MARKER}
    program = HOST + GUARDED.partition("mark = ")[0] + DIES
    done = subprocess.run(
        powerless([sys.executable, "-c", program, "host"]),
        env={**kept, "PYTHONPATH": SOURCE},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
    )
    told = json.loads(done.stdout)
    assert told["protected"]
    try:
        psutil.Process(told["child"]).wait(10)
    except psutil.NoSuchProcess:
        pass


def test_a_library_is_not_protected_by_itself() -> None:
    """Debuggers and core dumps of a program that imports us are its own: this very process is open."""
    assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 1  # PR_GET_DUMPABLE
