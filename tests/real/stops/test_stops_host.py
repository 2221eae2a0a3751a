"""`geminids run` leaves no process when `--timeout` or a signal, even SIGKILL, ends it."""

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
    """Return the only `Finished` event, which must be the last line that the host printed."""
    events = [decode_event(line) for line in hosts.events.read_bytes().splitlines()]
    assert [type(event) for event in events].count(Finished) == 1, hosts.errors.read_text()
    assert isinstance(events[-1], Finished)
    return events[-1]


def _check_ended(hosts: Any, stop_state: Any, outcome: str) -> None:
    finished = _finished(hosts)
    signals = {one.pid: one.signal for one in finished.ended}
    assert finished.outcome == outcome
    assert hosts.errors.read_bytes() == b""
    assert {stop_state.pid_in(name) for name in stop_state.files} <= set(signals)
    if stop_state.must_be_killed:
        assert signals[stop_state.pid_in(stop_state.files[0])] == "KILL"


@pytest.mark.parametrize(("way", "state"), _cases("SIGINT", "SIGTERM"))
def test_a_signal_stops_the_command(hosts: Any, stop_state: Callable[..., Any], way: str, state: str) -> None:
    """After SIGINT or SIGTERM, `geminids run` prints one `Finished` within its grace + 1 s, exits
    with code 130 and leaves no process."""
    target_state = stop_state(state)
    host = hosts.run("--approval=yolo", f"--grace={GRACE}", env=target_state.options.get("env"))
    target_state.wait()
    began = time.time()
    host.send_signal(getattr(signal, way))
    assert host.wait(30) == 130
    # Measure until the last line was written: Python's own shutdown does not count.
    took = hosts.events.stat().st_mtime - began
    print(f"{way} to Finished: {took:.2f} s")
    assert took < GRACE + 1
    _check_ended(hosts, target_state, "interrupted")
    target_state.assert_gone()


@pytest.mark.parametrize(("way", "state"), _cases("SIGKILL"))
def test_the_guard_ends_what_a_killed_host_leaves(
    hosts: Any, stop_state: Callable[..., Any], wait_until: Any, way: str, state: str
) -> None:
    """Within 2 s after SIGKILL of the host, all processes that it started have ended. The guard
    ends them, and then itself."""
    target_state = stop_state(state)
    host = hosts.run("--approval=yolo", f"--grace={GRACE}", env=target_state.options.get("env"))
    target_state.wait()
    guards = [child for child in host.children() if child not in marked(os.environ[MARKER])]
    assert len(guards) == 1
    began = time.monotonic()
    host.kill()
    assert host.wait(10) == -signal.SIGKILL
    assert wait_until(lambda: not marked(os.environ[MARKER]), 2), "a process is left after 2 s"
    print(f"SIGKILL to nothing left: {time.monotonic() - began:.2f} s")
    target_state.assert_gone()
    assert wait_until(lambda: not _is_running(guards[0]), 2)


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("way", "state"), _cases("timeout"))
def test_a_timeout_ends_the_command(hosts: Any, stop_state: Callable[..., Any], way: str, state: str) -> None:
    """A run over `--timeout` prints one `Finished`, exits with code 124 and leaves no process."""
    for limit in (5, 15, 45):
        target_state = stop_state(state)
        host = hosts.run(
            "--approval=yolo", f"--grace={GRACE}", f"--timeout={limit}", env=target_state.options.get("env")
        )
        began = time.monotonic()
        assert host.wait(60) == 124
        assert time.monotonic() - began < limit + GRACE + 3  # includes Python's own start and exit
        if target_state.is_there():
            break
    _check_ended(hosts, target_state, "timed_out")
    target_state.assert_gone()


def test_a_second_signal_cuts_the_grace_short(
    hosts: Any, stop_state: Callable[..., Any], wait_until: Any
) -> None:
    """A second SIGINT ends the grace of 30 s within 1.5 s, and no process is left."""
    target_state = stop_state("stubborn", left=True)
    host = hosts.run("--approval=yolo", "--grace=30")
    target_state.wait()
    cli = next(child for child in host.children() if child in marked(os.environ[MARKER]))
    host.send_signal(signal.SIGINT)
    assert wait_until(lambda: not _is_running(cli), 20), "the first signal did not reach the CLI"
    assert host.poll() is None  # the process that ignores SIGTERM is still in its grace
    began = time.monotonic()
    host.send_signal(signal.SIGINT)
    assert host.wait(30) == 130
    took = time.monotonic() - began
    print(f"second SIGINT to exit: {took:.2f} s")
    assert took < 1.5
    _check_ended(hosts, target_state, "interrupted")
    target_state.assert_gone()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_at_the_very_start(
    hosts: Any, stop_state: Callable[..., Any], wait_until: Any, name: str
) -> None:
    """A signal right after the start of the CLI interrupts the run: exit code 130, and no process
    is left."""
    target_state = stop_state("api")
    host = hosts.run(f"--grace={GRACE}")
    assert wait_until(lambda: len(marked(os.environ[MARKER])) > 1, 30)
    host.send_signal(getattr(signal, name))
    assert host.wait(30) == 130
    _check_ended(hosts, target_state, "interrupted")
    assert marked(os.environ[MARKER]) == []
