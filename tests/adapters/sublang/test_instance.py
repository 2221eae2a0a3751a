"""Tests of `AgentInstance`: an agent with a role that continues its own session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from fake_agents import FakeAgent, behaviours, done, event
from geminids.adapters.sublang import AgentEvent, AgentInstance, AgentOptions, Deadline
from geminids.errors import GeminidsError, OptionsError

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def _run(instance: AgentInstance, **options: Any) -> list[AgentEvent]:
    with anyio.fail_after(20):
        return [one async for one in instance.run("a", AgentOptions(**options))]


async def test_the_role_is_on_every_event() -> None:
    """Every event has the role of the instance, including events that geminids adds.
    Without a role, a role from the adapter is removed."""
    assert {one.role for one in await _run(AgentInstance(FakeAgent(behaviours.raises), role="critic"))} == {
        "critic"
    }

    async def behaviour(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("done", {}, role="usurper")

    assert [one.role for one in await _run(AgentInstance(FakeAgent(behaviour)))] == [None]


async def test_runs_continue_the_last_session() -> None:
    """Each run resumes with the token of the last `done`. `resume=False` starts a new session."""
    agent = FakeAgent()
    instance = AgentInstance(agent, AgentOptions(model="m"))
    await _run(instance)
    assert instance.resume_token == "t-1"
    await _run(instance)
    await _run(instance, resume=False)
    await _run(instance, resume="other")
    assert [options.resume for _, options in agent.seen] == [None, "t-1", None, "other"]
    assert {options.model for _, options in agent.seen} == {"m"}


@pytest.mark.parametrize("behaviour", ["raises", "stops_short"])
async def test_failed_run_clears_the_token(behaviour: str) -> None:
    """A run that raises or ends without `done` clears the token, as the
    session state is unknown."""
    instance = AgentInstance(FakeAgent(getattr(behaviours, behaviour)))
    instance._keep("t-0")
    await _run(instance)
    assert instance.resume_token is None


async def test_done_without_a_token_clears_the_token() -> None:
    """A `done` event without a token clears the stored token."""

    async def behaviour(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield done(token=None)

    instance = AgentInstance(FakeAgent(behaviour))
    instance._keep("t-0")
    await _run(instance)
    assert instance.resume_token is None


async def test_abort_keeps_the_token() -> None:
    """An abort before or during a run keeps the stored token.
    If the adapter sends its own `done`, its token is stored."""
    instance = AgentInstance(FakeAgent(behaviours.hangs))
    instance._keep("t-0")
    await _run(instance, abort_signal=Deadline(0))
    await _run(instance, abort_signal=Deadline(0.05))
    assert instance.resume_token == "t-0"
    obedient = AgentInstance(FakeAgent(behaviours.heeds))
    await _run(obedient, abort_signal=Deadline(0.05))
    assert obedient.resume_token == "t-own"


async def test_one_run_at_a_time() -> None:
    """A second run raises an error until the first run has its `done` event."""
    instance = AgentInstance(FakeAgent(), role="critic")
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


async def test_resume_and_abort_are_options_of_a_call() -> None:
    """`resume` and `abort_signal` cannot be defaults of an instance."""
    with pytest.raises(OptionsError, match="resume: can be set for a run"):
        AgentInstance(FakeAgent(), AgentOptions(resume="t"))
    with pytest.raises(OptionsError, match="abort_signal: can be set for a run"):
        AgentInstance(FakeAgent(), AgentOptions(abort_signal=Deadline(1)))
