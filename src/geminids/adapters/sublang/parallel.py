"""Run many agents at once, and merge their events into one stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial

import msgspec

from geminids.adapters.sublang.agent import AgentAdapter, AgentInstance, EventMaker, describe_error
from geminids.adapters.sublang.feed import Feed
from geminids.adapters.sublang.options import AgentOptions
from geminids.adapters.sublang.registry import run_agent
from geminids.dialects.agent_events.model import AgentEvent
from geminids.log import get_logger

__all__ = ["AgentTask", "run_parallel"]

_log = get_logger("adapters")


class AgentTask(msgspec.Struct, frozen=True, kw_only=True):
    """One of the runs that `run_parallel` starts. `agent` is an `AgentInstance`, an adapter or the
    name of an adapter.

    If `role` is set, each event of the run contains this role, so that a reader can tell the runs
    apart.
    """

    agent: AgentAdapter | AgentInstance | str
    prompt: str
    options: AgentOptions | None = None
    role: str | None = None


async def run_parallel(tasks: Iterable[AgentTask]) -> AsyncIterator[AgentEvent]:
    """Yield the events of all runs as they arrive.

    Each run has its own `done`. A failed run does not stop the others.
    """
    feed: Feed[AgentEvent] = Feed([partial(_run_task, task) for task in tasks])
    feed.start()
    try:
        while True:
            await feed.arrival()
            if feed.error is not None:
                raise feed.error  # only Ctrl-C or SystemExit: `_run_task` turns other errors into events
            if feed.is_empty:
                return
            yield feed.take()
    finally:
        await feed.close()


async def _run_task(task: AgentTask) -> AsyncIterator[AgentEvent]:
    """Yield the events of one run. If the run cannot start, yield an `error` event and a `done`
    event."""
    try:
        events = _events(task)
        try:
            async for event in events:
                yield event if task.role is None else msgspec.structs.replace(event, role=task.role)
        finally:
            await events.aclose()  # type: ignore[attr-defined]
    except Exception as error:
        _log.warning("a parallel task failed", error=error)
        maker = EventMaker(_name(task))
        for event in (maker.error("PARALLEL_TASK_ERROR", describe_error(error)), maker.done("error")):
            yield event if _role(task) is None else msgspec.structs.replace(event, role=_role(task))


def _events(task: AgentTask) -> AsyncIterator[AgentEvent]:
    if isinstance(task.agent, AgentInstance):
        return task.agent.run(task.prompt, task.options)
    return run_agent(task.agent, task.prompt, task.options)


def _name(task: AgentTask) -> str:
    agent = task.agent.adapter if isinstance(task.agent, AgentInstance) else task.agent
    name = agent if isinstance(agent, str) else getattr(agent, "agent", None)
    return name if isinstance(name, str) and name else "unknown"


def _role(task: AgentTask) -> str | None:
    own = task.agent.role if isinstance(task.agent, AgentInstance) else None
    return task.role if task.role is not None else own
