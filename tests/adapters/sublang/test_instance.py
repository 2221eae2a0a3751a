"""Agents with a role and a memory of where they were."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from geminids.adapters.sublang import AgentEvent, AgentInstance, AgentOptions, Deadline
from geminids.errors import GeminidsError, OptionsError
from made_up_agents import Parrot, done, event, ways

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def _run(instance: AgentInstance, **options: Any) -> list[AgentEvent]:
    with anyio.fail_after(20):
        return [one async for one in instance.run("a", AgentOptions(**options))]


async def test_the_role_is_on_every_event() -> None:
    """Also on those that we make; without a role there is none, whatever the adapter says."""
    assert {one.role for one in await _run(AgentInstance(Parrot(ways.raises), role="critic"))} == {"critic"}

    async def way(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("done", {}, role="usurper")

    assert [one.role for one in await _run(AgentInstance(Parrot(way)))] == [None]


async def test_each_run_goes_on_with_the_last() -> None:
    """The token of a `done` is what the next run resumes; False does not."""
    parrot = Parrot()
    instance = AgentInstance(parrot, AgentOptions(model="m"))
    await _run(instance)
    assert instance.resume_token == "t-1"
    await _run(instance)
    await _run(instance, resume=False)
    await _run(instance, resume="other")
    assert [options.resume for _, options in parrot.seen] == [None, "t-1", None, "other"]
    assert {options.model for _, options in parrot.seen} == {"m"}


@pytest.mark.parametrize("way", ["raises", "stops_short"])
async def test_a_run_that_breaks_forgets(way: str) -> None:
    """Nobody knows what state such a session is in."""
    instance = AgentInstance(Parrot(getattr(ways, way)))
    instance._keep("t-0")
    await _run(instance)
    assert instance.resume_token is None


async def test_a_done_without_a_token_forgets() -> None:
    """The adapter says that there is nothing to go on with."""

    async def way(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield done(token=None)

    instance = AgentInstance(Parrot(way))
    instance._keep("t-0")
    await _run(instance)
    assert instance.resume_token is None


async def test_an_interruption_of_ours_forgets_nothing() -> None:
    """The token stays, before the start and while waiting; the adapter's own `done` brings its own."""
    instance = AgentInstance(Parrot(ways.hangs))
    instance._keep("t-0")
    await _run(instance, abort=Deadline(0))
    await _run(instance, abort=Deadline(0.05))
    assert instance.resume_token == "t-0"
    heeding = AgentInstance(Parrot(ways.heeds))
    await _run(heeding, abort=Deadline(0.05))
    assert heeding.resume_token == "t-own"


async def test_one_run_at_a_time() -> None:
    """A second one raises on its first step, and may begin when the first has its `done`."""
    instance = AgentInstance(Parrot(), role="critic")
    first = instance.run("a")
    assert (await anext(first)).type == "init"
    second = instance.run("b")
    with pytest.raises(GeminidsError, match="critic is already running"):
        await anext(second)
    while (await anext(first)).type != "done":
        pass
    third = instance.run("c")
    assert (await anext(third)).type == "init"
    assert [one async for one in first] == []
    with pytest.raises(GeminidsError, match="already running"):
        await _run(instance)
    assert [one.type async for one in third][-1] == "done"


async def test_what_belongs_to_a_call() -> None:
    """A default token or signal would hold for every run: both are refused."""
    with pytest.raises(OptionsError, match="resume: is an option of a call"):
        AgentInstance(Parrot(), AgentOptions(resume="t"))
    with pytest.raises(OptionsError, match="abort: is an option of a call"):
        AgentInstance(Parrot(), AgentOptions(abort=Deadline(1)))
