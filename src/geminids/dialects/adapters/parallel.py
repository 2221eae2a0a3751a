"""Many runs at once in one stream: each has its own `done`, and one that fails does not end the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial

import msgspec

from geminids.dialects.adapters.feed import Feed
from geminids.dialects.adapters.instance import AgentInstance
from geminids.dialects.adapters.options import AgentOptions
from geminids.dialects.adapters.run import AgentAdapter, Narrator, hardened, told
from geminids.dialects.agent_events.model import AgentEvent
from geminids.log import get_logger

__all__ = ["AgentTask", "merged_runs"]

_log = get_logger("adapters")

Find = Callable[[str], AgentAdapter]


class AgentTask(msgspec.Struct, frozen=True, kw_only=True):
    """One run of many: an instance, an adapter or the name of one. `role` is put on its events, to tell them apart."""

    agent: AgentAdapter | AgentInstance | str
    prompt: str
    options: AgentOptions | None = None
    role: str | None = None


async def merged_runs(tasks: Iterable[AgentTask], find: Find) -> AsyncIterator[AgentEvent]:
    """The events of all of them, as they arrive; `find` gives an adapter by its name."""
    feed: Feed[AgentEvent] = Feed(_sources(tuple(tasks), find))
    feed.start()
    try:
        while True:
            await feed.arrival()
            if feed.error is not None:
                raise feed.error  # Ctrl-C and its kin: what a run does is told in its events
            if feed.is_empty:
                return
            yield feed.take()
    finally:
        await feed.close()


def _sources(tasks: Sequence[AgentTask], find: Find) -> list[Callable[[], AsyncIterator[AgentEvent]]]:
    return [partial(_one, task, find) for task in tasks]


async def _one(task: AgentTask, find: Find) -> AsyncIterator[AgentEvent]:
    """One run that cannot raise, not even where it cannot start."""
    try:
        events = _events(task, find)
        try:
            async for event in events:
                yield event if task.role is None else msgspec.structs.replace(event, role=task.role)
        finally:
            await events.aclose()  # type: ignore[attr-defined]
    except Exception as error:
        _log.warning("a parallel task could not be started", error=error)
        narrator = Narrator(_name(task))
        for made in (narrator.error("PARALLEL_TASK_ERROR", told(error)), narrator.done("error")):
            yield made if _role(task) is None else msgspec.structs.replace(made, role=_role(task))


def _events(task: AgentTask, find: Find) -> AsyncIterator[AgentEvent]:
    if isinstance(task.agent, AgentInstance):
        return task.agent.run(task.prompt, task.options)
    adapter = find(task.agent) if isinstance(task.agent, str) else task.agent
    return hardened(adapter, task.prompt, task.options or AgentOptions())


def _name(task: AgentTask) -> str:
    named = task.agent.adapter if isinstance(task.agent, AgentInstance) else task.agent
    name = named if isinstance(named, str) else getattr(named, "agent", None)
    return name if isinstance(name, str) and name else "unknown"


def _role(task: AgentTask) -> str | None:
    own = task.agent.role if isinstance(task.agent, AgentInstance) else None
    return task.role if task.role is not None else own
