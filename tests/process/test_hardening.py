"""Tests of process hardening, without root privileges: other processes of the user cannot read a
protected host."""

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
from unprivileged import without_privileges

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux supports this")

SOURCE = str(Path(__file__).parents[2] / "src")
SECRET = "a-secret-of-the-host"

# A host that protects itself or not. A child of the same user then tries to read it.
HOST = """
import ctypes, json, os, subprocess, sys
from geminids.process import hardening
def is_protected():
    return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0  # PR_GET_DUMPABLE
protection = sys.argv[1]
report = {"open_before": not is_protected()}
if protection == "command":
    hardening.protect_command()
elif protection == "host":
    report["can"] = hardening.protect_host()
report["protected"] = is_protected()
LOOK = '''
import json, os, sys
def access(read):
    try:
        read()
        return "readable"
    except PermissionError:
        return "denied"
pid = os.getppid()
base = f"/proc/{pid}/"
print(json.dumps({
    "environ": access(lambda: open(base + "environ").read()),
    "mem": access(lambda: open(base + "mem", "rb")),
    "fd": access(lambda: [os.readlink(base + "fd/" + fd) for fd in os.listdir(base + "fd")]),
    "maps": access(lambda: open(base + "maps").read()),
    "stat": access(lambda: open(base + "stat").read()),
    "cmdline": access(lambda: open(base + "cmdline").read()),
}))
'''
report["access"] = json.loads(subprocess.check_output([sys.executable, "-IS", "-c", LOOK], env={}))
"""


def _host(protection: str, more: str = "", **env: str) -> dict[str, Any]:
    inherited = {name: value for name, value in os.environ.items() if name != MARKER}
    done = subprocess.run(
        without_privileges([sys.executable, "-c", HOST + more + "\nprint(json.dumps(report))", protection]),
        env={**inherited, "PYTHONPATH": SOURCE, "A_SECRET_KEY": SECRET, **env},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["open_before"]
    return report


def test_an_unprotected_host_can_be_read() -> None:
    """A child can read the environment, files and memory map of an unprotected host.

    This shows that the other tests can fail.
    """
    report = _host("")
    assert not report["protected"]
    assert report["access"]["environ"] == report["access"]["fd"] == report["access"]["maps"] == "readable"


@pytest.mark.parametrize("protection", ["host", "command"])
def test_a_protected_host_cannot_be_read(protection: str) -> None:
    """Environment, memory and open files of a protected host cannot be read; `ps` still lists
    it."""
    report = _host(protection)
    assert report["protected"]
    access = report["access"]
    assert [access[name] for name in ("environ", "mem", "fd", "maps")] == ["denied"] * 4
    assert [access[name] for name in ("stat", "cmdline")] == ["readable"] * 2


def test_a_command_inside_a_run_is_not_protected() -> None:
    """A command inside a run is not protected, because the outer host must read its mark."""
    report = _host("command", **{MARKER: "1:2:3:run-outer"})
    assert not report["protected"]
    assert report["access"]["environ"] == "readable"


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
report["me"] = [me.name() != "", me.create_time() > 0, me.num_fds() > 0, me.memory_info().rss > 0]
[guard] = [p for p in me.children() if p.pid != child.pid]
report["marked"] = [p.pid for p in marked(str(mark))] == [child.pid]
report["alive"] = mark.host_is_alive()
report["guard_environ"] = guard.environ()
report["guard_words"] = guard.cmdline()
child.signal_group("KILL")
child._popen.wait()
release_run(mark)
"""


def test_our_own_functions_work_in_a_protected_host() -> None:
    """psutil, the search for marked processes and the host check work in a protected host."""
    report = _host("host", GUARDED)
    assert report["protected"]
    assert report["me"] == [True] * 4
    assert report["marked"]
    assert report["alive"]


def test_the_guard_carries_no_secret() -> None:
    """The guard, which is not protected, has no secret in its environment or arguments."""
    report = _host("host", GUARDED)
    assert report["guard_environ"] == {}
    assert SECRET not in str(report["guard_words"])


DIES = """
mark = new_mark("run-dies")
guard_run(mark)
child = spawn(["sleep", "60"], cwd="/", env=with_mark({"PATH": os.environ["PATH"]}, mark))
print(json.dumps({**report, "child": child.pid}), flush=True)
os.kill(os.getpid(), 9)
"""


def test_the_guard_of_a_protected_host_works() -> None:
    """When a protected host is killed, its guard ends the processes of the run."""
    inherited = {name: value for name, value in os.environ.items() if name != MARKER}
    program = HOST + GUARDED.partition("mark = ")[0] + DIES
    done = subprocess.run(
        without_privileges([sys.executable, "-c", program, "host"]),
        env={**inherited, "PYTHONPATH": SOURCE},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
    )
    report = json.loads(done.stdout)
    assert report["protected"]
    try:
        psutil.Process(report["child"]).wait(10)
    except psutil.NoSuchProcess:
        pass


def test_importing_does_not_protect_the_program() -> None:
    """Importing the library does not protect the program, so that debuggers and core dumps keep
    working."""
    assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 1  # PR_GET_DUMPABLE
