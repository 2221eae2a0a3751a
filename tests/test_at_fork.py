"""Tests of `at_fork`: the package has one fork hook, which runs all registered functions in a
child."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import geminids

_PROGRAM = """
import os, threading
from geminids.at_fork import importing, run_in_child

ran = []
def fail():
    ran.append("second")
    raise OSError("no such descriptor")
run_in_child(lambda: ran.append("first"))
run_in_child(fail)
run_in_child(lambda: ran.append("third"))

imports, done = threading.Event(), []
def load():
    with importing():
        imports.set()
        threading.Event().wait(0.2)
        done.append(True)
thread = threading.Thread(target=load)
thread.start()
imports.wait()
pid = os.fork()
if pid == 0:
    with importing():
        print(ran, done, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(ran, flush=True)
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_functions_run_in_the_child_after_imports_are_done() -> None:
    """All functions run in order, in the child only, and a failing one does not stop the others.

    A fork waits for `importing` blocks of other threads, and the child can enter one.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "['first', 'second', 'third'] [True]\n[]\n"
    assert done.stderr == ""


def test_one_module_registers_fork_hooks() -> None:
    """Only at_fork.py calls `os.register_at_fork`, so that the order of all functions is visible in
    one place."""
    source = Path(geminids.__path__[0])
    users = [
        file.relative_to(source).as_posix()
        for file in source.rglob("*.py")
        if "os.register_at_fork(" in file.read_text()
    ]
    assert users == ["at_fork.py"]
