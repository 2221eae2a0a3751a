"""Processes after a run: all are ended, unless `leftovers="keep"`. Processes of others are never
touched."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

import geminids
from geminids.process.marker import MARKER, new_mark, with_mark
from geminids.process.tree import marked
from guard_process import guard_of

pytestmark = pytest.mark.real

_DAEMON = (
    "setsid sh -c 'echo $$ > daemon.pid; exec sleep 300' >/dev/null 2>&1 & "
    "until test -s daemon.pid; do sleep 0.02; done"
)
# The CLI removes a leading `sh -c` from a command (stripShellWrapper). `true;` prevents that.
_BACKGROUND = "true; sh -c 'echo $$ > daemon.pid; exec sleep 300'"
SHELLS = [
    pytest.param({"command": _DAEMON}, id="setsid"),
    pytest.param({"command": _BACKGROUND, "is_background": True}, id="is_background"),
]


@pytest.fixture
def daemon(world: Any, wait_until: Any) -> Iterator[Callable[[], int]]:
    """Return a function that gives the pid of the run's background process; kill that process after
    the test."""
    file = world.cwd / "daemon.pid"

    def pid() -> int:
        assert wait_until(lambda: file.exists() and file.read_text().endswith("\n"), 10)
        return int(file.read_text())

    yield pid
    if file.exists():
        for process in [one for one in marked(os.environ[MARKER]) if one.pid == pid()]:
            process.kill()
    assert wait_until(lambda: not marked(os.environ[MARKER]), 5)


def _records(world: Any) -> list[Path]:
    return list(world.places.kept.iterdir()) if world.places.kept.exists() else []


@pytest.mark.parametrize("shell", SHELLS)
def test_leftovers_are_ended_and_reported(
    world: Any, daemon: Any, is_running: Any, shell: dict[str, Any]
) -> None:
    """By default a background process ends with its run, and the result lists it."""
    world.gateway.reply(calls=[("run_shell_command", shell)])
    world.gateway.reply(text="done")
    result = world.ask(approval="yolo")
    assert (result.outcome, result.answer) == ("success", "done")
    assert not is_running(daemon())
    assert daemon() in [one.pid for one in result.ended]
    assert _records(world) == []


_HOST = """
import sys, geminids
cwd, version, leftovers = sys.argv[1:]
result = geminids.ask_sync("hello", cwd=cwd, gemini=version, model="flash", approval="yolo", leftovers=leftovers)
print(result.outcome, result.run_id, len(result.ended), flush=True)
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_kept_leftovers_outlive_the_host(
    world: Any, hosts: Any, daemon: Any, is_running: Any, wait_until: Any, shell: dict[str, Any]
) -> None:
    """With `leftovers="keep"`, a background process survives its run and the host. A private, empty
    record has the id of the run as its name."""
    world.gateway.reply(calls=[("run_shell_command", shell)])
    world.gateway.reply(text="done")
    host = hosts.start([sys.executable, "-c", _HOST, str(world.cwd), world.version, "keep"], {})
    assert wait_until(lambda: hosts.events.read_text().endswith("\n"), 60), hosts.errors.read_text()
    guards = [child for child in host.children() if os.environ[MARKER] not in str(child.environ())]
    assert host.wait(10) == 0
    outcome, run_id, ended = hosts.events.read_text().split()
    assert (outcome, ended) == ("success", "0")
    # After the guard has ended, nothing else would end the process.
    for guard in guards:
        assert wait_until(
            lambda guard=guard: not guard.is_running() or guard.status() == psutil.STATUS_ZOMBIE, 5
        )
    assert is_running(daemon())
    [record] = _records(world)
    assert (record.name, record.read_bytes()) == (run_id, b"")
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700


def test_leftovers_are_kept_for_a_slow_caller(
    world: Any, fake_cli: Any, daemon: Any, is_running: Any
) -> None:
    """`leftovers="keep"` also works if the caller reads the events only after the CLI has
    exited."""
    line = '{"type":"message","timestamp":"t","role":"assistant","content":"' + "x" * 900 + '","delta":true}'
    # More than our buffer, less than buffer and pipe together.
    print_many_lines = f"yes '{line}' | head -n 1900"
    result = '{"type":"result","timestamp":"t","status":"success"}'
    start_daemon = f"cd {world.cwd}\n{_DAEMON}\nuntil test -s daemon.pid; do sleep 0.01; done"
    run = geminids.open_run(
        "hello",
        world.options(
            gemini=fake_cli(f"{start_daemon}\n{print_many_lines}; echo '{result}'"), leftovers="keep"
        ),
    )

    async def main() -> None:
        async with run:
            with anyio.fail_after(60):
                while psutil.pid_exists(run.pid or 0):
                    await anyio.sleep(0.01)
            async for _ in run:
                pass

    anyio.run(main)
    assert (run.result.outcome, len(run.result.answer)) == ("success", 1900 * 900)
    assert is_running(daemon())
    assert len(_records(world)) == 1


def test_no_record_where_nothing_is_kept(world: Any) -> None:
    """A run without leftovers writes no record, even with `leftovers="keep"`."""
    world.gateway.reply(text="done")
    assert world.ask(leftovers="keep").ok
    assert _records(world) == []


@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_only_success_keeps_leftovers(world: Any, daemon: Any, is_running: Any, outcome: str) -> None:
    """A failed or stopped run ends all processes, even with `leftovers="keep"`."""
    world.gateway.reply(calls=[("run_shell_command", {"command": _DAEMON})])
    if outcome == "failed":
        world.gateway.reply(status=400, error="no")
    else:
        world.gateway.reply(stall=True)

    async def main() -> geminids.Result:
        options = world.options(approval="yolo", leftovers="keep", max_attempts=1)
        async with geminids.open_run("hello", options) as run:
            with anyio.fail_after(60):
                while len(world.gateway.requests) < 2:
                    await anyio.sleep(0.02)
            if outcome == "failed":
                async for _ in run:
                    pass
        return run.result

    result = anyio.run(main)
    assert result.outcome == outcome
    assert not is_running(daemon())
    assert daemon() in [one.pid for one in result.ended]
    assert _records(world) == []


def test_a_run_survives_the_thread_that_started_it(world: Any) -> None:
    """A run continues when the thread that started it ends."""
    world.gateway.reply(text="done", delay=1)
    run = geminids.open_run("hello", world.options())
    thread = threading.Thread(target=run.launch)
    thread.start()
    thread.join()

    async def main() -> None:
        async with run:
            async for _ in run:
                pass

    anyio.run(main)
    assert (run.result.outcome, run.result.answer) == ("success", "done")


@pytest.fixture
def bystanders(world: Any) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that do not belong to the run but resemble its processes: by a mark, by the folder,
    or by the command line."""
    other_mark = with_mark(os.environ, new_mark("run-of-somebody"))
    old_mark = with_mark(os.environ, geminids.process.marker.Mark(2**22 - 3, 1, "0", "run-gone"))
    no_mark = {"PATH": os.environ["PATH"]}
    gemini_like_command = [
        sys.executable,
        "-c",
        "import time; time.sleep(300)",
        "gemini",
        "--output-format=stream-json",
    ]
    started = [
        subprocess.Popen(argv, cwd=cwd, env=env, start_new_session=alone)
        for argv, cwd, env, alone in (
            (["sleep", "300"], "/", other_mark, False),
            (["sleep", "300"], "/", old_mark, True),
            (["sleep", "300"], "/", no_mark, True),
            (["sleep", "300"], world.cwd, os.environ, True),
            (gemini_like_command, world.cwd, os.environ, False),
        )
    ]
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_bystanders_are_left_alone(world: Any, stop_state: Callable[..., Any], bystanders: Any) -> None:
    """A stop ends only processes with the run's mark, never by name, folder or another mark."""
    state = stop_state("stubborn")

    async def main() -> geminids.Result:
        async with geminids.open_run("hello", world.options(**state.options)) as run:
            await state.reached()
        assert marked(run.mark or "?") == []
        return run.result

    ended = {one.pid for one in anyio.run(main).ended}
    assert [process.poll() for process in bystanders] == [None] * 5
    guard = guard_of()
    assert guard is not None
    assert ended.isdisjoint({process.pid for process in bystanders} | {os.getpid(), guard.pid})


def test_the_guard_leaves_bystanders_alone(
    hosts: Any, stop_state: Callable[..., Any], wait_until: Any, bystanders: Any
) -> None:
    """After a host is killed, its guard ends only the processes of the host's runs."""
    state = stop_state("daemon")
    host = hosts.run("--approval=yolo")
    state.wait()
    bystander_pids = {process.pid for process in bystanders}
    host.kill()
    host.wait()
    assert wait_until(lambda: {process.pid for process in marked(os.environ[MARKER])} <= bystander_pids, 2)
    assert [process.poll() for process in bystanders] == [None] * 5


def test_two_runs_do_not_touch_each_other(world: Any, is_running: Any, wait_until: Any) -> None:
    """Stopping one of two runs of a host does not disturb the other."""
    for name, then in (("first", {"stall": True}), ("second", {"text": "done"})):
        command = f"true; sh -c 'echo $$ > {name}.pid; until test -e {name}.go; do sleep 0.1; done'"
        world.gateway.when(name, calls=[("run_shell_command", {"command": command})])
        world.gateway.when(name, **then)

    def pid(name: str) -> int:
        file = world.cwd / f"{name}.pid"
        return int(file.read_text()) if file.exists() and file.read_text().endswith("\n") else 0

    async def main() -> None:
        # The CLI is ended `grace` seconds after its result. A busy machine needs more than two
        # seconds.
        options = world.options(approval="yolo", grace=60)
        async with geminids.open_run("second", options) as second:
            async with geminids.open_run("first", options) as first:
                with anyio.fail_after(90):
                    while not (pid("first") and pid("second")):
                        await anyio.sleep(0.02)
            assert not is_running(pid("first"))
            assert is_running(pid("second"))
            (world.cwd / "second.go").touch()
            async for _ in second:
                pass
        assert (first.result.outcome, second.result.outcome) == ("interrupted", "success")
        assert second.result.answer == "done"
        assert second.result.ended == ()

    anyio.run(main)
