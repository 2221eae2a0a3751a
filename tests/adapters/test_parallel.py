"""Many runs in one stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator

import anyio
import pytest

from geminids.adapters import AgentTask, run_parallel
from geminids.adapters.sublang import AgentEvent, AgentInstance, AgentOptions, Deadline
from made_up_agents import Parrot, ways

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def _by_role(tasks: list[AgentTask]) -> dict[str | None, list[AgentEvent]]:
    streams: dict[str | None, list[AgentEvent]] = defaultdict(list)
    with anyio.fail_after(20):
        async for one in run_parallel(tasks):
            streams[one.role].append(one)
    return streams


async def test_twenty_at_once() -> None:
    """One raises, one is aborted, one hangs until its time is over: the other 17 finish, each in its order."""
    words = " ".join(map(str, range(50)))
    odd = {
        "3": (Parrot(ways.raises), None),
        "7": (Parrot(ways.heeds), Deadline(0.1)),
        "11": (Parrot(ways.hangs), Deadline(0.2)),
    }
    tasks = []
    for role in map(str, range(20)):
        parrot, abort = odd.get(role, (Parrot(), None))
        tasks.append(AgentTask(agent=parrot, prompt=words, options=AgentOptions(abort=abort), role=role))
    streams = await _by_role(tasks)
    assert len(streams) == 20
    for own, events in streams.items():
        assert [one.type for one in events].count("done") == 1
        assert events[-1].type == "done"
        if own not in odd:
            assert [one.payload["delta"] for one in events[1:-1]] == words.split()
    assert [one.type for one in streams["3"]][-2:] == ["error", "done"]
    assert streams["7"][-1].payload["status"] == "interrupted"
    assert streams["11"][-1].payload.status == "interrupted"
    assert all(isinstance(task.agent, Parrot) and task.agent.closed == 1 for task in tasks)


async def test_streams_are_interleaved() -> None:
    """No run waits for another."""
    tasks = [AgentTask(agent=Parrot(), prompt="a b c d e f", role=role) for role in "xy"]
    order = [one.role async for one in run_parallel(tasks)]
    assert order != sorted(order, key=str)


async def test_a_task_that_cannot_start() -> None:
    """A name that is not there, and an instance that is busy: an error and a `done`, and the others go on."""
    busy = AgentInstance(Parrot(ways.hangs), role="busy")
    other = busy.run("a")
    await anext(other)
    tasks = [
        AgentTask(agent="nobody", prompt="a", role="unknown"),
        AgentTask(agent=busy, prompt="a"),
        AgentTask(agent=Parrot(), prompt="a", role="good"),
    ]
    streams = await _by_role(tasks)
    await other.aclose()  # type: ignore[attr-defined]
    for role in ("unknown", "busy"):
        error, done = streams[role]
        assert (error.payload.code, done.payload.status) == ("PARALLEL_TASK_ERROR", "error")
    assert "no adapter 'nobody'" in streams["unknown"][0].payload.message
    assert streams["unknown"][0].agent == "nobody"
    assert streams["good"][-1].payload["status"] == "success"


async def test_what_is_no_agent_at_all() -> None:
    """Such a task has an error and a `done` too, and the others go on."""
    tasks = [
        AgentTask(agent=None, prompt="a", role="bad"),  # type: ignore[arg-type]
        AgentTask(agent=Parrot(), prompt="a", role="good"),
    ]
    streams = await _by_role(tasks)
    assert [one.type for one in streams["bad"]] == ["error", "done"]
    assert {one.agent for one in streams["bad"]} == {"unknown"}
    assert streams["good"][-1].payload["status"] == "success"


async def test_one_instance_twice() -> None:
    """One of the two runs, the other is told that it cannot."""
    one = AgentInstance(Parrot())
    streams = await _by_role([AgentTask(agent=one, prompt="a", role=role) for role in "xy"])
    kinds = sorted([event.type for event in events] for events in streams.values())
    assert kinds == [["error", "done"], ["init", "text_delta", "done"]]


async def test_an_interrupt_ends_all_at_once() -> None:
    """Ctrl-C within one run is raised to the reader, and no other run is waited for."""

    async def way(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        raise KeyboardInterrupt
        yield

    other = Parrot(ways.hangs)
    tasks = [AgentTask(agent=Parrot(way), prompt="a"), AgentTask(agent=other, prompt="a")]
    with pytest.raises(KeyboardInterrupt):
        await _by_role(tasks)
    assert other.closed == 1


async def test_no_tasks() -> None:
    """An empty stream."""
    assert [one async for one in run_parallel([])] == []


async def test_breaking_off_ends_all() -> None:
    """Closing the stream closes every run."""
    parrots = [Parrot(ways.hangs) for _ in range(5)]
    events = run_parallel([AgentTask(agent=parrot, prompt="a") for parrot in parrots])
    for _ in parrots:
        await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    assert [parrot.closed for parrot in parrots] == [1] * 5
