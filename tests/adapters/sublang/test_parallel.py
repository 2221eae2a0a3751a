"""Tests of `run_parallel`, which merges many runs into one stream of events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator

import anyio
import pytest

from fake_agents import FakeAgent, behaviours
from geminids.adapters import AgentTask, run_parallel
from geminids.adapters.sublang import AgentEvent, AgentInstance, AgentOptions, Deadline

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def _by_role(tasks: list[AgentTask]) -> dict[str | None, list[AgentEvent]]:
    """Run the tasks in parallel and return their events by role."""
    streams: dict[str | None, list[AgentEvent]] = defaultdict(list)
    with anyio.fail_after(20):
        async for event in run_parallel(tasks):
            streams[event.role].append(event)
    return streams


async def test_twenty_parallel_tasks() -> None:
    """If one task raises, one is aborted and one times out, the other 17 of 20 still finish.
    The events of each task keep their order."""
    words = " ".join(map(str, range(50)))
    special = {
        "3": (FakeAgent(behaviours.raises), None),
        "7": (FakeAgent(behaviours.heeds), Deadline(0.1)),
        "11": (FakeAgent(behaviours.hangs), Deadline(0.2)),
    }
    tasks = []
    for role in map(str, range(20)):
        agent, abort = special.get(role, (FakeAgent(), None))
        tasks.append(
            AgentTask(agent=agent, prompt=words, options=AgentOptions(abort_signal=abort), role=role)
        )
    streams = await _by_role(tasks)
    assert len(streams) == 20
    for task_role, events in streams.items():
        assert [event.type for event in events].count("done") == 1
        assert events[-1].type == "done"
        if task_role not in special:
            assert [event.payload["delta"] for event in events[1:-1]] == words.split()
    assert [event.type for event in streams["3"]][-2:] == ["error", "done"]
    assert streams["7"][-1].payload["status"] == "interrupted"
    assert streams["11"][-1].payload.status == "interrupted"
    assert all(isinstance(task.agent, FakeAgent) and task.agent.closed == 1 for task in tasks)


async def test_streams_are_interleaved() -> None:
    """The events of parallel tasks are interleaved: no task waits for another."""
    tasks = [AgentTask(agent=FakeAgent(), prompt="a b c d e f", role=role) for role in "xy"]
    order = [event.role async for event in run_parallel(tasks)]
    assert order != sorted(order, key=str)


async def test_task_that_cannot_start() -> None:
    """A task with an unknown agent or a busy instance gets an `error` and a `done` event.
    The other tasks continue."""
    busy = AgentInstance(FakeAgent(behaviours.hangs), role="busy")
    other = busy.run("a")
    await anext(other)
    tasks = [
        AgentTask(agent="nobody", prompt="a", role="unknown"),
        AgentTask(agent=busy, prompt="a"),
        AgentTask(agent=FakeAgent(), prompt="a", role="good"),
    ]
    streams = await _by_role(tasks)
    await other.aclose()  # type: ignore[attr-defined]
    for role in ("unknown", "busy"):
        error, done = streams[role]
        assert (error.payload.code, done.payload.status) == ("PARALLEL_TASK_ERROR", "error")
    assert "no adapter 'nobody'" in streams["unknown"][0].payload.message
    assert streams["unknown"][0].agent == "nobody"
    assert streams["good"][-1].payload["status"] == "success"


async def test_invalid_agent() -> None:
    """A task whose agent is not an agent gets an `error` and a `done` event.
    The other tasks continue."""
    tasks = [
        AgentTask(agent=None, prompt="a", role="bad"),  # type: ignore[arg-type]
        AgentTask(agent=FakeAgent(), prompt="a", role="good"),
    ]
    streams = await _by_role(tasks)
    assert [event.type for event in streams["bad"]] == ["error", "done"]
    assert {event.agent for event in streams["bad"]} == {"unknown"}
    assert streams["good"][-1].payload["status"] == "success"


async def test_one_instance_in_two_tasks() -> None:
    """If two tasks use the same instance, one runs and the other gets an error."""
    instance = AgentInstance(FakeAgent())
    streams = await _by_role([AgentTask(agent=instance, prompt="a", role=role) for role in "xy"])
    kinds = sorted([event.type for event in events] for events in streams.values())
    assert kinds == [["error", "done"], ["init", "text_delta", "done"]]


async def test_keyboard_interrupt_ends_all_tasks() -> None:
    """A KeyboardInterrupt in one task is raised to the caller, and the other tasks are closed."""

    async def interrupt(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        raise KeyboardInterrupt
        yield

    other = FakeAgent(behaviours.hangs)
    tasks = [AgentTask(agent=FakeAgent(interrupt), prompt="a"), AgentTask(agent=other, prompt="a")]
    with pytest.raises(KeyboardInterrupt):
        await _by_role(tasks)
    assert other.closed == 1


async def test_no_tasks() -> None:
    """Without tasks, the stream is empty."""
    assert [event async for event in run_parallel([])] == []


async def test_closing_the_stream_closes_all_runs() -> None:
    """Closing the stream closes every run."""
    agents = [FakeAgent(behaviours.hangs) for _ in range(5)]
    events = run_parallel([AgentTask(agent=agent, prompt="a") for agent in agents])
    for _ in agents:
        await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    assert [agent.closed for agent in agents] == [1] * 5
