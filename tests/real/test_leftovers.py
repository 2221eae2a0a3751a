"""What a run leaves behind: nothing, or what it was told to keep, and never less of the user's own."""

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
# The CLI takes a leading `sh -c` off a command (stripShellWrapper): `true;` keeps it.
_BACKGROUND = "true; sh -c 'echo $$ > daemon.pid; exec sleep 300'"
SHELLS = [
    pytest.param({"command": _DAEMON}, id="setsid"),
    pytest.param({"command": _BACKGROUND, "is_background": True}, id="is_background"),
]


@pytest.fixture
def daemon(world: Any, soon: Any) -> Iterator[Callable[[], int]]:
    """The pid that the run's background process has written; it is ended after the test."""
    file = world.cwd / "daemon.pid"

    def pid() -> int:
        assert soon(lambda: file.exists() and file.read_text().endswith("\n"), 10)
        return int(file.read_text())

    yield pid
    if file.exists():
        for process in [one for one in marked(os.environ[MARKER]) if one.pid == pid()]:
            process.kill()
    assert soon(lambda: not marked(os.environ[MARKER]), 5)


def _records(world: Any) -> list[Path]:
    return list(world.places.kept.iterdir()) if world.places.kept.exists() else []


@pytest.mark.parametrize("shell", SHELLS)
def test_leftovers_are_ended_and_told(world: Any, daemon: Any, lives: Any, shell: dict[str, Any]) -> None:
    """By default a background process ends with its run, which lists it."""
    world.gateway.reply(calls=[("run_shell_command", shell)])
    world.gateway.reply(text="done")
    result = world.ask(approval="yolo")
    assert (result.outcome, result.answer) == ("success", "done")
    assert not lives(daemon())
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
    world: Any, hosts: Any, daemon: Any, lives: Any, soon: Any, shell: dict[str, Any]
) -> None:
    """`leftovers="keep"`: it runs on after the run and after its host, with a private record of that."""
    world.gateway.reply(calls=[("run_shell_command", shell)])
    world.gateway.reply(text="done")
    host = hosts.start([sys.executable, "-c", _HOST, str(world.cwd), world.version, "keep"], {})
    assert soon(lambda: hosts.events.read_text().endswith("\n"), 60), hosts.errors.read_text()
    guards = [child for child in host.children() if os.environ[MARKER] not in str(child.environ())]
    assert host.wait(10) == 0
    outcome, run_id, ended = hosts.events.read_text().split()
    assert (outcome, ended) == ("success", "0")
    for guard in guards:  # it had its chance to act
        assert soon(lambda guard=guard: not guard.is_running() or guard.status() == psutil.STATUS_ZOMBIE, 5)
    assert lives(daemon())
    [record] = _records(world)
    assert (record.name, record.read_bytes()) == (run_id, b"")
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700


def test_a_result_that_is_read_late_keeps_them_too(
    world: Any, stand_in: Any, daemon: Any, lives: Any
) -> None:
    """Before a slow caller the CLI is gone before its last words are read; they decide what it may leave."""
    line = '{"type":"message","timestamp":"t","role":"assistant","content":"' + "x" * 900 + '","delta":true}'
    many = f"yes '{line}' | head -n 1900"  # more than we hold back, less than that and what a pipe holds
    result = '{"type":"result","timestamp":"t","status":"success"}'
    started = f"cd {world.cwd}\n{_DAEMON}\nuntil test -s daemon.pid; do sleep 0.01; done"
    run = geminids.open_run(
        "hello", world.options(gemini=stand_in(f"{started}\n{many}; echo '{result}'"), leftovers="keep")
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
    assert lives(daemon())
    assert len(_records(world)) == 1


def test_no_record_where_nothing_is_kept(world: Any) -> None:
    """A run that leaves nothing writes no record, whatever it was allowed to keep."""
    world.gateway.reply(text="done")
    assert world.ask(leftovers="keep").ok
    assert _records(world) == []


@pytest.mark.parametrize("how", ["failed", "interrupted"])
def test_only_success_keeps_leftovers(world: Any, daemon: Any, lives: Any, how: str) -> None:
    """A run that failed or was stopped ends all, also where it was allowed to keep something."""
    world.gateway.reply(calls=[("run_shell_command", {"command": _DAEMON})])
    if how == "failed":
        world.gateway.reply(status=400, error="no")
    else:
        world.gateway.reply(stall=True)

    async def main() -> geminids.Result:
        options = world.options(approval="yolo", leftovers="keep", max_attempts=1)
        async with geminids.open_run("hello", options) as run:
            with anyio.fail_after(60):
                while len(world.gateway.requests) < 2:
                    await anyio.sleep(0.02)
            if how == "failed":
                async for _ in run:
                    pass
        return run.result

    result = anyio.run(main)
    assert result.outcome == how
    assert not lives(daemon())
    assert daemon() in [one.pid for one in result.ended]
    assert _records(world) == []


def test_a_thread_that_ends_takes_no_run_with_it(world: Any) -> None:
    """A run that was launched in a thread goes on when that thread is gone."""
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
    """Processes that are none of the run's business, each alike to one in its own way."""
    other = with_mark(os.environ, new_mark("run-of-somebody"))
    gone = with_mark(os.environ, geminids.process.marker.Mark(2**22 - 3, 1, "0", "run-gone"))
    bare = {"PATH": os.environ["PATH"]}
    likes_gemini = [
        sys.executable,
        "-c",
        "import time; time.sleep(300)",
        "gemini",
        "--output-format=stream-json",
    ]
    started = [
        subprocess.Popen(argv, cwd=cwd, env=env, start_new_session=alone)
        for argv, cwd, env, alone in (
            (["sleep", "300"], "/", other, False),
            (["sleep", "300"], "/", gone, True),
            (["sleep", "300"], "/", bare, True),
            (["sleep", "300"], world.cwd, os.environ, True),
            (likes_gemini, world.cwd, os.environ, False),
        )
    ]
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_bystanders_are_left_alone(world: Any, stage: Callable[..., Any], bystanders: Any) -> None:
    """A stop ends what carries the run's mark and nothing else: not by name, folder or another's mark."""
    where = stage("stubborn")

    async def main() -> geminids.Result:
        async with geminids.open_run("hello", world.options(**where.options)) as run:
            await where.reached()
        assert marked(run.mark or "?") == []
        return run.result

    ended = {one.pid for one in anyio.run(main).ended}
    assert [process.poll() for process in bystanders] == [None] * 5
    guard = guard_of()
    assert guard is not None
    assert ended.isdisjoint({process.pid for process in bystanders} | {os.getpid(), guard.pid})


def test_the_guard_leaves_bystanders_alone(
    hosts: Any, stage: Callable[..., Any], soon: Any, bystanders: Any
) -> None:
    """A killed host: its guard ends the host's runs, and nothing that only looks like one."""
    where = stage("daemon")
    host = hosts.run("--approval=yolo")
    where.wait()
    ours = {process.pid for process in bystanders}
    host.kill()
    host.wait()
    assert soon(lambda: {process.pid for process in marked(os.environ[MARKER])} <= ours, 2)
    assert [process.poll() for process in bystanders] == [None] * 5


def test_two_runs_do_not_touch_each_other(world: Any, lives: Any, soon: Any) -> None:
    """Stopping one of two runs of a host leaves the other one at work."""
    for name, then in (("first", {"stall": True}), ("second", {"text": "done"})):
        command = f"true; sh -c 'echo $$ > {name}.pid; until test -e {name}.go; do sleep 0.1; done'"
        world.gateway.when(name, calls=[("run_shell_command", {"command": command})])
        world.gateway.when(name, **then)

    def pid(name: str) -> int:
        file = world.cwd / f"{name}.pid"
        return int(file.read_text()) if file.exists() and file.read_text().endswith("\n") else 0

    async def main() -> None:
        # A CLI that has given its result is ended after `grace`, and a busy machine needs more than two seconds.
        options = world.options(approval="yolo", grace=60)
        async with geminids.open_run("second", options) as second:
            async with geminids.open_run("first", options) as first:
                with anyio.fail_after(90):
                    while not (pid("first") and pid("second")):
                        await anyio.sleep(0.02)
            assert not lives(pid("first"))
            assert lives(pid("second"))
            (world.cwd / "second.go").touch()
            async for _ in second:
                pass
        assert (first.result.outcome, second.result.outcome) == ("interrupted", "success")
        assert second.result.answer == "done"
        assert second.result.ended == ()

    anyio.run(main)
