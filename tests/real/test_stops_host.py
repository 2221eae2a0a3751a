"""`geminids run` that is stopped by signals, the one that cannot be caught included."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from geminids.events.model import Finished, decode_event
from geminids.process.marker import MARKER
from geminids.process.tree import marked

pytestmark = pytest.mark.real

STATES = ("api", "stubborn", "daemon", "daemon_ci")
GRACE = 1.5
FAST = {("SIGINT", "daemon"), ("SIGTERM", "stubborn"), ("SIGKILL", "daemon_ci"), ("timeout", "api")}


def _cases(*ways: str) -> list[Any]:
    return [
        pytest.param(way, state, marks=() if (way, state) in FAST else pytest.mark.deep)
        for way in ways
        for state in STATES
    ]


def _finished(hosts: Any) -> Finished:
    """The one `Finished` that the host has printed, as its last line."""
    events = [decode_event(line) for line in hosts.events.read_bytes().splitlines()]
    assert [type(event) for event in events].count(Finished) == 1, hosts.errors.read_text()
    assert isinstance(events[-1], Finished)
    return events[-1]


def _check_ended(hosts: Any, stage: Any, outcome: str) -> None:
    finished = _finished(hosts)
    signals = {one.pid: one.signal for one in finished.ended}
    assert finished.outcome == outcome
    assert hosts.errors.read_bytes() == b""
    assert {stage.pid_in(name) for name in stage.files} <= set(signals)
    if stage.must_be_killed:
        assert signals[stage.pid_in(stage.files[0])] == "KILL"


@pytest.mark.parametrize(("way", "state"), _cases("SIGINT", "SIGTERM"))
def test_a_signal_stops_the_command(hosts: Any, stage: Callable[..., Any], way: str, state: str) -> None:
    """Ctrl-C and SIGTERM: exit code 130 within grace + 1 s, one `Finished`, and nothing left."""
    where = stage(state)
    host = hosts.run("--approval=yolo", f"--grace={GRACE}", env=where.options.get("env"))
    where.wait()
    began = time.time()
    host.send_signal(getattr(signal, way))
    assert host.wait(30) == 130
    # When the last line was written: what Python needs to take itself down is not the run's.
    took = hosts.events.stat().st_mtime - began
    print(f"{way} to Finished: {took:.2f} s")
    assert took < GRACE + 1
    _check_ended(hosts, where, "interrupted")
    where.assert_gone()


@pytest.mark.parametrize(("way", "state"), _cases("SIGKILL"))
def test_the_guard_ends_what_a_killed_host_leaves(
    hosts: Any, stage: Callable[..., Any], soon: Any, way: str, state: str
) -> None:
    """SIGKILL of the host: within 2 s nothing that it had started is left, the guard itself included."""
    where = stage(state)
    host = hosts.run("--approval=yolo", f"--grace={GRACE}", env=where.options.get("env"))
    where.wait()
    guards = [child for child in host.children() if child not in marked(os.environ[MARKER])]
    assert len(guards) == 1
    began = time.monotonic()
    host.kill()
    assert host.wait(10) == -signal.SIGKILL
    assert soon(lambda: not marked(os.environ[MARKER]), 2), "something is left after 2 s"
    print(f"SIGKILL to nothing left: {time.monotonic() - began:.2f} s")
    where.assert_gone()
    assert soon(lambda: not _runs(guards[0]), 2)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("way", "state"), _cases("timeout"))
def test_a_timeout_ends_the_command(hosts: Any, stage: Callable[..., Any], way: str, state: str) -> None:
    """`--timeout`: exit code 124, one `Finished`, and nothing left."""
    for limit in (5, 15, 45):
        where = stage(state)
        host = hosts.run(
            "--approval=yolo", f"--grace={GRACE}", f"--timeout={limit}", env=where.options.get("env")
        )
        began = time.monotonic()
        assert host.wait(60) == 124
        assert time.monotonic() - began < limit + GRACE + 3  # Python's own start and end are in it
        if where.is_there():
            break
    _check_ended(hosts, where, "timed_out")
    where.assert_gone()


def test_a_second_signal_cuts_the_grace_short(hosts: Any, stage: Callable[..., Any], soon: Any) -> None:
    """Whoever presses Ctrl-C twice does not wait for the grace, and still nothing is left."""
    where = stage("stubborn", left=True)
    host = hosts.run("--approval=yolo", "--grace=30")
    where.wait()
    cli = next(child for child in host.children() if child in marked(os.environ[MARKER]))
    host.send_signal(signal.SIGINT)
    assert soon(lambda: not _runs(cli), 20), "the first signal did not reach the CLI"
    assert host.poll() is None  # the stubborn one has its grace
    began = time.monotonic()
    host.send_signal(signal.SIGINT)
    assert host.wait(30) == 130
    took = time.monotonic() - began
    print(f"second SIGINT to exit: {took:.2f} s")
    assert took < 1.5
    _check_ended(hosts, where, "interrupted")
    where.assert_gone()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_at_the_very_start(hosts: Any, stage: Callable[..., Any], soon: Any, name: str) -> None:
    """A signal that comes as soon as the CLI was spawned is a stop like any other."""
    where = stage("api")
    host = hosts.run(f"--grace={GRACE}")
    assert soon(lambda: len(marked(os.environ[MARKER])) > 1, 30)
    host.send_signal(getattr(signal, name))
    assert host.wait(30) == 130
    _check_ended(hosts, where, "interrupted")
    assert marked(os.environ[MARKER]) == []
