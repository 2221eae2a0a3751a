"""A run that is stopped or timed out ends with all its processes, in time, with one `Finished`."""

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
# One case for each way to stop a run, and at least one for each state. The other cases are deep.
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


class WatchedRun:
    """A run with the events that were read from it, and the times of its stop and its
    `Finished`."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.events: list[Any] = []
        self.stopped_at = self.finished_at = 0.0

    async def read(self) -> None:
        async for event in self.run:
            self.events.append(event)
            if isinstance(event, Finished):
                self.finished_at = time.time()

    def check(self, stop_state: Any, outcome: str, grace: float = GRACE) -> None:
        """Check the rules for every stop: one `Finished` as the last event, within the grace + 1 s,
        and no process left."""
        took = self.finished_at - self.stopped_at
        ended = [(process.command[:40], process.signal) for process in self.result.ended]
        print(f"stop to Finished: {took:.2f} s, ended {ended}")
        kinds = [type(event) for event in self.events]
        assert kinds.count(Finished) == 1
        assert kinds[-1] is Finished
        assert kinds.count(Started) == 1
        assert kinds.count(ToolStarted) == kinds.count(ToolFinished)
        assert [event.seq for event in self.events] == list(range(len(self.events)))
        assert self.result.outcome == outcome
        assert took < grace + 1
        assert self.run.mark
        stop_state.assert_gone(self.run.mark)
        self._check_ended(stop_state)

    @property
    def result(self) -> geminids.Result:
        return self.run.result

    def _check_ended(self, stop_state: Any) -> None:
        """The result lists the CLI and the processes of its tools, each with the signal that ended
        it."""
        signals = {process.pid: process.signal for process in self.result.ended}
        assert self.run.pid in signals
        for name in stop_state.files:
            assert stop_state.pid_in(name) in signals
        if stop_state.must_be_killed:
            assert signals[stop_state.pid_in(stop_state.files[0])] == "KILL"


async def _stop_run(way: str, watched: WatchedRun, stop_state: Any) -> None:
    """Wait until the run is in the state, then stop it in one of the ways that a caller has."""
    if way == "task":
        task = asyncio.create_task(_read_in_block(watched))
        await stop_state.reached()
        watched.stopped_at = time.time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    elif way == "scope":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_in_block, watched)
            await stop_state.reached()
            watched.stopped_at = time.time()
            tasks.cancel_scope.cancel()
    elif way == "leave":
        async with watched.run:
            await stop_state.reached()
            watched.stopped_at = time.time()
    else:
        async with watched.run, anyio.create_task_group() as tasks:
            tasks.start_soon(watched.read)
            await stop_state.reached()
            watched.stopped_at = time.time()
            watched.run.stop()


async def _read_in_block(watched: WatchedRun) -> None:
    async with watched.run:
        await watched.read()


@pytest.mark.parametrize(("way", "state"), _cases("task", "scope", "leave", "stop"))
def test_the_caller_stops_a_run(world: Any, stop_state: Callable[..., Any], way: str, state: str) -> None:
    """A run ends as interrupted within its grace + 1 s if its task or scope is cancelled, its block
    is left or `stop()` is called. It emits one `Finished` and leaves no process."""
    target_state = stop_state(state)
    watched = WatchedRun(geminids.open_run(target_state.prompt, world.options(**target_state.options)))

    async def main() -> None:
        await _stop_run(way, watched, target_state)
        ended_at = time.time()
        await watched.read()  # events that the caller has not read yet are still available
        watched.finished_at = watched.finished_at if way == "stop" else ended_at

    anyio.run(main, backend="trio" if way == "scope" else "asyncio")
    watched.check(target_state, "interrupted")


@pytest.mark.parametrize(("way", "state"), _cases("timeout", "idle"))
def test_a_deadline_stops_a_run(world: Any, stop_state: Callable[..., Any], way: str, state: str) -> None:
    """A run over its `timeout` or `idle_timeout` ends as `timed_out`, with one `Finished` and
    without a process left."""
    for limit in (5.0, 15.0, 45.0):
        target_state = stop_state(state, left=way == "idle", prompt=f"try {limit}")
        limits = {"idle_timeout" if way == "idle" else "timeout": limit}
        watched = WatchedRun(
            geminids.open_run(target_state.prompt, world.options(**target_state.options, **limits))
        )
        anyio.run(_read_in_block, watched)
        if target_state.is_there():
            break  # otherwise the machine was too slow to reach the state within the limit
    last_activity = world.gateway.requests[-1].at if way == "idle" else watched.events[0].at / 1000
    watched.stopped_at = last_activity + limit
    assert watched.finished_at > watched.stopped_at - 1  # the CLI's last output is shortly before its request
    watched.check(target_state, "timed_out")


def test_a_second_cancel_shortens_the_grace(world: Any, stop_state: Callable[..., Any]) -> None:
    """A second `task.cancel()`, which passes every shield, ends the grace of 30 s within 1.5 s. All
    processes still end."""
    target_state = stop_state("stubborn", left=True)
    watched = WatchedRun(
        geminids.open_run(target_state.prompt, world.options(**{**target_state.options, "grace": 30}))
    )

    async def main() -> None:
        task = asyncio.create_task(_read_in_block(watched))
        await target_state.reached()
        task.cancel()
        await asyncio.sleep(0.3)
        assert not task.done()  # the process that ignores SIGTERM is still in its grace
        watched.stopped_at = time.time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await watched.read()

    asyncio.run(main())
    watched.check(target_state, "interrupted", grace=0.5)


def test_leaving_after_stop_keeps_the_grace(world: Any, stop_state: Callable[..., Any]) -> None:
    """Leaving the run's block after `stop()` does not shorten the grace of its processes."""
    target_state = stop_state("stubborn", left=True)
    watched = WatchedRun(geminids.open_run(target_state.prompt, world.options(**target_state.options)))

    async def main() -> None:
        async with watched.run:
            await target_state.reached()
            watched.stopped_at = time.time()
            watched.run.stop()
        await watched.read()

    anyio.run(main)
    assert watched.finished_at - watched.stopped_at > GRACE
    watched.check(target_state, "interrupted")


def test_a_closed_event_loop_ends_the_run(world: Any, stop_state: Callable[..., Any]) -> None:
    """If the event loop of a run is closed, the run ends as interrupted, with a result and without
    a process left."""
    target_state = stop_state("daemon")
    watched = WatchedRun(geminids.open_run(target_state.prompt, world.options(**target_state.options)))

    async def main() -> None:
        await watched.run.__aenter__()
        await target_state.reached()
        watched.stopped_at = time.time()

    asyncio.run(main())
    anyio.run(watched.read)
    watched.check(target_state, "interrupted")


_SUCCESS = """\
echo '{"type":"init","timestamp":"t","session_id":"s","model":"m"}'
echo '{"type":"message","timestamp":"t","role":"assistant","content":"done","delta":true}'
echo '{"type":"result","timestamp":"t","status":"success"}'"""
_ERROR = '{"type":"result","timestamp":"t","status":"error","error":{"type":"unknown","message":"[API Error: no]"}}'


@pytest.mark.parametrize("limits", [{"timeout": 1}, {"grace": 1}], ids=str)
def test_a_timeout_after_success_keeps_success(world: Any, fake_cli: Any, limits: dict[str, float]) -> None:
    """If the CLI does not exit after its success result, geminids ends it. The outcome stays
    `success`."""
    result = world.ask(gemini=fake_cli(f"{_SUCCESS}\nexec sleep 300"), **limits)
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
def test_a_failure_before_the_deadline_stays_a_failure(world: Any, fake_cli: Any, script: str) -> None:
    """A failed run stays `failed`, even if its time-out passes while its last processes are
    ended."""
    result = world.ask(gemini=fake_cli(script), timeout=1, grace=1.5)
    assert result.outcome == "failed"
    assert result.failure
    assert result.ended


@pytest.mark.deep
def test_an_idle_timeout_waits_for_a_tool(world: Any) -> None:
    """`idle_timeout` does not apply while a tool runs: a tool may be silent for longer."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 6"})])
    world.gateway.reply(text="done")
    result = world.ask(approval="yolo", idle_timeout=4)
    assert (result.outcome, result.answer) == ("success", "done")
    assert result.duration_ms > 6000


def test_a_silent_start_ends_the_run(world: Any, fake_cli: Any) -> None:
    """`start_timeout` ends a CLI that prints nothing. A shorter `idle_timeout` does not apply
    before the first output."""
    result = world.ask(gemini=fake_cli("exec sleep 300"), start_timeout=1, idle_timeout=0.2, grace=1)
    assert result.outcome == "timed_out"
    assert "no output from the CLI" in result.reason
    assert 1000 <= result.duration_ms < 4000
    assert [one.command for one in result.ended] == ["sleep 300"]
