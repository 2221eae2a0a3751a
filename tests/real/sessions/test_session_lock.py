"""Only one run can use a session at a time. The real CLI itself does not lock sessions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import geminids
from collect_events import check_events, select_events
from geminids import Notice, sessions
from geminids.events.model import decode_event

pytestmark = pytest.mark.real

Host = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=pytest.mark.deep)])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


def _create_session(world: Any) -> str:
    world.gateway.when("remember", text="the word is pear")
    result = world.ask("remember")
    assert result.ok, result.failure
    return str(result.session_id)


def _assert_in_order(world: Any, session: str, first: str, second: str) -> None:
    """The second run receives the first one's answer, and the file has both in that order."""
    bodies = [json.dumps(request.body) for request in world.gateway.requests[-2:]]
    assert first in bodies[1] and first not in bodies[0]
    loaded = sessions.load(session, world.cwd, environ={"HOME": str(world.home)}, places=world.places)
    answers = [message.text for message in loaded.messages if message.type == "gemini"]
    assert answers == ["the word is pear", first, second]


@pytest.mark.anyio
async def test_two_resumes_run_one_after_the_other(world: Any) -> None:
    """Two runs resume one session at the same time. The second run waits, its notice names the
    first run, and its model receives the first run's answer."""
    session = await anyio.to_thread.run_sync(_create_session, world)
    world.gateway.when("go on", text="answer one", delay=0.5)
    world.gateway.when("go on", text="answer two")
    runs: list[Any] = []
    events_of_runs: list[list[Any]] = []

    async def resume() -> None:
        async with geminids.open_run("go on", world.options(resume=session)) as run:
            runs.append(run)
            events_of_runs.append([event async for event in run])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resume)
        tasks.start_soon(resume)
    for run in runs:
        assert (run.result.outcome, run.result.session_id, run.result.complete) == ("success", session, True)
    waited = [events for events in events_of_runs if select_events(events, Notice, code="session_busy")]
    assert len(waited) == 1
    (notice,) = select_events(waited[0], Notice, code="session_busy")
    assert sum(run.id in notice.message for run in runs) == 1
    for events in events_of_runs:
        check_events(events)
    _assert_in_order(world, session, "answer one", "answer two")


@pytest.fixture
def host(world: Any) -> Iterator[Host]:
    """Return a function that starts `geminids run` in a new process. Afterwards end all of them."""
    started: list[subprocess.Popen[bytes]] = []
    env = {**os.environ, **world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}

    def start(*flags: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "geminids", "run", "go on", "-o", "events", f"--cwd={world.cwd}"]
        argv += [f"--gemini={world.version}", "--model=flash", *flags]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=30)


def _last_event(host: subprocess.Popen[bytes]) -> Any:
    out, _ = host.communicate(timeout=60)
    return decode_event(out.splitlines()[-1])


def _wait_for_notice(host: subprocess.Popen[bytes], code: str) -> Any:
    """Read the events of a host until a notice with this code arrives, and return the notice."""
    assert host.stdout is not None
    for line in host.stdout:
        event = decode_event(line)
        if isinstance(event, Notice) and event.code == code:
            return event
    raise AssertionError(f"the run ended without a notice with the code {code}")


@pytest.mark.deep
def test_runs_in_two_processes_wait_for_each_other(world: Any, host: Host) -> None:
    """A run in a second process waits until the first run of the session ends. With `--when-busy
    fail` it fails at once with `session_busy`."""
    session = _create_session(world)
    world.gateway.when("go on", text="answer one", delay=1.5)
    world.gateway.when("go on", text="answer two")
    first = host("--resume", session)
    _wait_for_notice(first, "session")
    second = host("--continue")
    assert f"process {first.pid}" in _wait_for_notice(second, "session_busy").message
    busy = _last_event(host("--resume", session, "--when-busy", "fail"))
    assert (busy.failure.kind, busy.failure.retryable) == ("session_busy", True)
    assert _last_event(first).answer == "answer one"
    assert _last_event(second).answer == "answer two"
    _assert_in_order(world, session, "answer one", "answer two")


@pytest.mark.deep
def test_a_killed_host_releases_its_session(world: Any, host: Host, wait_until: Any, is_running: Any) -> None:
    """After SIGKILL of the first host, the waiting run starts when all processes of the first run
    have ended."""
    session = _create_session(world)
    command = "echo $$ > tool.pid; sleep 300"
    world.gateway.when("go on", calls=[("run_shell_command", {"command": command})])
    world.gateway.when("go on", text="answer two")
    first = host("--resume", session, "--approval=yolo")
    file = world.cwd / "tool.pid"
    assert wait_until(lambda: file.exists() and file.read_text().endswith("\n"), 60)
    tool = int(file.read_text())
    second = host("--resume", session)
    _wait_for_notice(second, "session_busy")
    first.send_signal(signal.SIGKILL)
    _wait_for_notice(second, "session")
    assert not is_running(tool)
    end = _last_event(second)
    assert (end.outcome, end.answer, end.session_id) == ("success", "answer two", session)
    assert "the word is pear" in json.dumps(world.gateway.requests[-1].body)
