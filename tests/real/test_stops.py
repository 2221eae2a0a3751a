"""A run that is stopped from within the host: it ends in time, wholly, and says so once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import geminids
from geminids import Finished, Run, Started, ToolFinished, ToolStarted

pytestmark = pytest.mark.real

STATES = ("api", "stubborn", "daemon", "daemon_ci")
GRACE = 1.5
# One case of each way and one of each state; all the others are deep.
FAST = {
    ("task", "stubborn"),
    ("scope", "daemon"),
    ("leave", "daemon_ci"),
    ("stop", "api"),
    ("timeout", "daemon"),
    ("idle", "api"),
}


def _cases(*ways: str) -> list[Any]:
    return [
        pytest.param(way, state, marks=() if (way, state) in FAST else pytest.mark.deep)
        for way in ways
        for state in STATES
    ]


class Watched:
    """A run whose events are read in a task, as a caller does, with the time at which its end was known."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.events: list[Any] = []
        self.stopped_at = self.known_at = 0.0

    async def read(self) -> None:
        async for event in self.run:
            self.events.append(event)
            if isinstance(event, Finished):
                self.known_at = time.time()

    def check(self, stage: Any, outcome: str, grace: float = GRACE) -> None:
        """What holds after every stop."""
        took = self.known_at - self.stopped_at
        print(
            f"stop to Finished: {took:.2f} s, ended {[(one.command[:40], one.signal) for one in self.result.ended]}"
        )
        kinds = [type(event) for event in self.events]
        assert kinds.count(Finished) == 1
        assert kinds[-1] is Finished
        assert kinds.count(Started) == 1
        assert kinds.count(ToolStarted) == kinds.count(ToolFinished)
        assert [event.seq for event in self.events] == list(range(len(self.events)))
        assert self.result.outcome == outcome
        assert took < grace + 1
        assert self.run.mark
        stage.assert_gone(self.run.mark)
        self._check_ended(stage)

    @property
    def result(self) -> geminids.Result:
        return self.run.result

    def _check_ended(self, stage: Any) -> None:
        """The CLI and what its tools had started are listed, each with the signal that ended it."""
        signals = {one.pid: one.signal for one in self.result.ended}
        assert self.run.pid in signals
        for name in stage.files:
            assert stage.pid_in(name) in signals
        if stage.must_be_killed:
            assert signals[stage.pid_in(stage.files[0])] == "KILL"


async def _stop_it(way: str, watched: Watched, stage: Any) -> None:
    """Reach the state, then stop the run in one of the ways that a caller has."""
    if way == "task":
        task = asyncio.create_task(_within(watched))
        await stage.reached()
        watched.stopped_at = time.time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    elif way == "scope":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_within, watched)
            await stage.reached()
            watched.stopped_at = time.time()
            tasks.cancel_scope.cancel()
    elif way == "leave":
        async with watched.run:
            await stage.reached()
            watched.stopped_at = time.time()
    else:
        async with watched.run, anyio.create_task_group() as tasks:
            tasks.start_soon(watched.read)
            await stage.reached()
            watched.stopped_at = time.time()
            watched.run.stop()


async def _within(watched: Watched) -> None:
    async with watched.run:
        await watched.read()


@pytest.mark.parametrize(("way", "state"), _cases("task", "scope", "leave", "stop"))
def test_the_caller_stops_a_run(world: Any, stage: Callable[..., Any], way: str, state: str) -> None:
    """Cancelled, left or stopped: `Finished` comes once within grace + 1 s, and no process of the run is left."""
    where = stage(state)
    watched = Watched(geminids.open_run(where.prompt, world.options(**where.options)))

    async def main() -> None:
        await _stop_it(way, watched, where)
        ended_at = time.time()
        await watched.read()  # what the caller had not read yet is still there
        watched.known_at = watched.known_at if way == "stop" else ended_at

    anyio.run(main, backend="trio" if way == "scope" else "asyncio")
    watched.check(where, "interrupted")


@pytest.mark.parametrize(("way", "state"), _cases("timeout", "idle"))
def test_a_deadline_stops_a_run(world: Any, stage: Callable[..., Any], way: str, state: str) -> None:
    """A deadline that passes ends the run as a caller would, with the outcome `timed_out`."""
    for limit in (5.0, 15.0, 45.0):
        where = stage(state, left=way == "idle", prompt=f"try {limit}")
        limits = {"idle_timeout" if way == "idle" else "timeout": limit}
        watched = Watched(geminids.open_run(where.prompt, world.options(**where.options, **limits)))
        anyio.run(_within, watched)
        if where.is_there():
            break  # else this machine was too slow to get there in time
    last_heard = world.gateway.requests[-1].at if way == "idle" else watched.events[0].at / 1000
    watched.stopped_at = last_heard + limit
    assert watched.known_at > watched.stopped_at - 1  # the CLI spoke last a moment before its request came
    watched.check(where, "timed_out")


def test_cancelled_twice_is_a_hurry(world: Any, stage: Callable[..., Any]) -> None:
    """A second `task.cancel()`, which asyncio lets through every shield, cuts the grace short and no corner."""
    where = stage("stubborn", left=True)
    watched = Watched(geminids.open_run(where.prompt, world.options(**{**where.options, "grace": 30})))

    async def main() -> None:
        task = asyncio.create_task(_within(watched))
        await where.reached()
        task.cancel()
        await asyncio.sleep(0.3)
        assert not task.done()  # the stubborn one has its grace
        watched.stopped_at = time.time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await watched.read()

    asyncio.run(main())
    watched.check(where, "interrupted", grace=0.5)


def test_leaving_is_not_asking_twice(world: Any, stage: Callable[..., Any]) -> None:
    """`stop()` and then the end of the block: the tool still has its grace."""
    where = stage("stubborn", left=True)
    watched = Watched(geminids.open_run(where.prompt, world.options(**where.options)))

    async def main() -> None:
        async with watched.run:
            await where.reached()
            watched.stopped_at = time.time()
            watched.run.stop()
        await watched.read()

    anyio.run(main)
    assert watched.known_at - watched.stopped_at > GRACE
    watched.check(where, "interrupted")


def test_an_event_loop_that_is_taken_down(world: Any, stage: Callable[..., Any]) -> None:
    """A run that nobody leaves ends with its event loop: at once, wholly, and with a result."""
    where = stage("daemon")
    watched = Watched(geminids.open_run(where.prompt, world.options(**where.options)))

    async def main() -> None:
        await watched.run.__aenter__()
        await where.reached()
        watched.stopped_at = time.time()

    asyncio.run(main())
    anyio.run(watched.read)
    watched.check(where, "interrupted")


_SUCCESS = """\
echo '{"type":"init","timestamp":"t","session_id":"s","model":"m"}'
echo '{"type":"message","timestamp":"t","role":"assistant","content":"done","delta":true}'
echo '{"type":"result","timestamp":"t","status":"success"}'"""
_ERROR = '{"type":"result","timestamp":"t","status":"error","error":{"type":"unknown","message":"[API Error: no]"}}'


@pytest.mark.parametrize("limits", [{"timeout": 1}, {"grace": 1}], ids=str)
def test_a_timeout_after_success_is_none(world: Any, stand_in: Any, limits: dict[str, float]) -> None:
    """A CLI that has given its result and does not go is ended, and the run is what the result says."""
    result = world.ask(gemini=stand_in(f"{_SUCCESS}\nexec sleep 300"), **limits)
    assert (result.outcome, result.answer) == ("success", "done")
    assert result.duration_ms < 5000
    assert [one.command for one in result.ended] == ["sleep 300"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(f"echo '{_ERROR}'\nexec sleep 300", id="an error, then no exit"),
        pytest.param(
            "setsid sh -c 'trap \"\" TERM; sleep 300' >/dev/null 2>&1 &\nsleep 0.2; exit 7", id="an exit"
        ),
    ],
)
def test_what_came_first_counts(world: Any, stand_in: Any, script: str) -> None:
    """A failure stays one, also where a deadline passes while what it has left is being ended."""
    result = world.ask(gemini=stand_in(script), timeout=1, grace=1.5)
    assert result.outcome == "failed"
    assert result.failure
    assert result.ended


@pytest.mark.deep
def test_an_idle_timeout_waits_for_a_tool(world: Any) -> None:
    """Silence while a tool runs is work: a tool may be silent for longer than `idle_timeout`."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 6"})])
    world.gateway.reply(text="done")
    result = world.ask(approval="yolo", idle_timeout=4)
    assert (result.outcome, result.answer) == ("success", "done")
    assert result.duration_ms > 6000


def test_a_silent_start_ends_the_run(world: Any, stand_in: Any) -> None:
    """`start_timeout` ends a program that says nothing at all, whatever it is."""
    result = world.ask(gemini=stand_in("exec sleep 300"), start_timeout=1, idle_timeout=0.2, grace=1)
    assert result.outcome == "timed_out"
    assert "no output from the CLI" in result.reason
    assert 1000 <= result.duration_ms < 4000
    assert [one.command for one in result.ended] == ["sleep 300"]
