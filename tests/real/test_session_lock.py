"""One run at a time in a session, with the real CLI: it has no lock of its own, and would write in between."""

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
from complete import lawful, of
from geminids import Notice, sessions
from geminids.events.model import decode_event

pytestmark = pytest.mark.real

Host = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=pytest.mark.deep)])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


def _session(world: Any) -> str:
    world.gateway.when("remember", text="the word is pear")
    result = world.ask("remember")
    assert result.ok, result.failure
    return str(result.session_id)


def _in_order(world: Any, session: str, first: str, second: str) -> None:
    """Who came second was told what the first one was answered; and so it stands in the file."""
    bodies = [json.dumps(request.body) for request in world.gateway.requests[-2:]]
    assert first in bodies[1] and first not in bodies[0]
    loaded = sessions.load(session, world.cwd, environ={"HOME": str(world.home)}, places=world.places)
    said = [message.text for message in loaded.messages if message.type == "gemini"]
    assert said == ["the word is pear", first, second]


@pytest.mark.anyio
async def test_resumed_twice_at_once_is_never_interleaved(world: Any) -> None:
    """In one event loop: the second waits and says for whom; its model knows what the first one was answered."""
    session = await anyio.to_thread.run_sync(_session, world)
    world.gateway.when("go on", text="answer one", delay=0.5)
    world.gateway.when("go on", text="answer two")
    runs: list[Any] = []
    seen: list[list[Any]] = []

    async def one() -> None:
        async with geminids.open_run("go on", world.options(resume=session)) as run:
            runs.append(run)
            seen.append([event async for event in run])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one)
        tasks.start_soon(one)
    for run in runs:
        assert (run.result.outcome, run.result.session_id, run.result.complete) == ("success", session, True)
    waited = [events for events in seen if of(events, Notice, code="session_busy")]
    assert len(waited) == 1
    (notice,) = of(waited[0], Notice, code="session_busy")
    assert sum(run.id in notice.message for run in runs) == 1
    for events in seen:
        lawful(events)
    _in_order(world, session, "answer one", "answer two")


@pytest.fixture
def host(world: Any) -> Iterator[Host]:
    """Starts `geminids run` in processes of their own; whichever the test has not waited for is ended."""
    started: list[subprocess.Popen[bytes]] = []
    env = {**os.environ, **world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}

    def start(*flags: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "geminids", "run", "go on", "-o", "events", f"--cwd={world.cwd}"]
        argv += [f"--gemini={world.version}", "--model=flash", *flags]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env))
        return started[-1]

    yield start
    for one in started:
        one.terminate()
        one.communicate(timeout=30)


def _end(host: subprocess.Popen[bytes]) -> Any:
    out, _ = host.communicate(timeout=60)
    return decode_event(out.splitlines()[-1])


def _notice(host: subprocess.Popen[bytes], code: str) -> Any:
    """Wait for a notice."""
    assert host.stdout is not None
    for line in host.stdout:
        event = decode_event(line)
        if isinstance(event, Notice) and event.code == code:
            return event
    raise AssertionError(f"it ended without {code}")


@pytest.mark.deep
def test_in_two_processes(world: Any, host: Host) -> None:
    """The second process waits for the first; `--when-busy fail` does not."""
    session = _session(world)
    world.gateway.when("go on", text="answer one", delay=1.5)
    world.gateway.when("go on", text="answer two")
    first = host("--resume", session)
    _notice(first, "session")
    second = host("--continue")
    assert f"process {first.pid}" in _notice(second, "session_busy").message
    busy = _end(host("--resume", session, "--when-busy", "fail"))
    assert (busy.failure.kind, busy.failure.retryable) == ("session_busy", True)
    assert _end(first).answer == "answer one"
    assert _end(second).answer == "answer two"
    _in_order(world, session, "answer one", "answer two")


@pytest.mark.deep
def test_a_holder_that_is_killed(world: Any, host: Host, soon: Any, lives: Any) -> None:
    """SIGKILL to the first host, whose CLI runs a tool: the second begins when all of that is gone, and is right."""
    session = _session(world)
    command = "echo $$ > tool.pid; sleep 300"
    world.gateway.when("go on", calls=[("run_shell_command", {"command": command})])
    world.gateway.when("go on", text="answer two")
    first = host("--resume", session, "--approval=yolo")
    file = world.cwd / "tool.pid"
    assert soon(lambda: file.exists() and file.read_text().endswith("\n"), 60)
    tool = int(file.read_text())
    second = host("--resume", session)
    _notice(second, "session_busy")
    first.send_signal(signal.SIGKILL)
    _notice(second, "session")
    assert not lives(tool)
    end = _end(second)
    assert (end.outcome, end.answer, end.session_id) == ("success", "answer two", session)
    assert "the word is pear" in json.dumps(world.gateway.requests[-1].body)
