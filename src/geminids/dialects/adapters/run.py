"""Runs of any adapter: alone, many in one stream, or by an `AgentInstance`. Each ends with exactly one `done`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import anyio
import msgspec

from geminids.dialects.adapters.feed import Feed
from geminids.dialects.adapters.options import AgentOptions, merged
from geminids.dialects.agent_events.model import AgentEvent, Done, Error
from geminids.dialects.agent_events.usage import AgentUsage
from geminids.errors import GeminidsError, OptionsError
from geminids.ids import new_run_id
from geminids.log import get_logger

__all__ = [
    "AgentAdapter",
    "AgentInstance",
    "AgentTask",
    "Keep",
    "Narrator",
    "hardened",
    "merged_runs",
    "told",
]

_log = get_logger("adapters")

_DRAIN = 0.5

Keep = Callable[[str | None], None]
"""Told the token that an instance shall go on with; not called where it shall keep the one that it has."""


@runtime_checkable
class AgentAdapter(Protocol):
    """An agent that can be run. `run` gives events, the last of them a `done`; its iterator is closed in the end."""

    @property
    def agent(self) -> str:
        """Its name: the key in the registry, and `agent` of its events."""
        ...

    def run(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]: ...

    def is_available(self) -> bool: ...


class Narrator:
    """Makes the events that an adapter did not give, from what it gave so far."""

    def __init__(self, agent: str, resume: str | None = None) -> None:
        self.agent = agent
        self._session = resume
        self._calls: set[str] = set()
        self._began = time.monotonic()

    def note(self, event: AgentEvent) -> None:
        self._session = event.session_id or self._session
        if event.type == "tool_use" and (call := _member(event.payload, "tool_use_id", "toolUseId")):
            self._calls.add(call)

    def error(self, code: str, message: str) -> AgentEvent:
        return self._new("error", Error(code=code, message=message, recoverable=False))

    def done(self, status: str, resume: str | None = None) -> AgentEvent:
        lasted = int((time.monotonic() - self._began) * 1000)
        usage = AgentUsage(len(self._calls))
        return self._new("done", Done(status=status, usage=usage, duration_ms=lasted, resume_token=resume))

    def _new(self, kind: str, payload: Any) -> AgentEvent:
        self._session = self._session or new_run_id()  # never empty
        return AgentEvent(
            type=kind,
            agent=self.agent,
            timestamp=int(time.time() * 1000),
            session_id=self._session,
            payload=payload,
        )


async def hardened(
    adapter: AgentAdapter, prompt: str, options: AgentOptions, keep: Keep | None = None
) -> AsyncIterator[AgentEvent]:
    """The events of one run. Nothing that the adapter does raises here, and nothing comes after `done`."""
    run = _Run(adapter, prompt, options, keep or (lambda token: None))
    if options.abort is not None and options.abort.is_set():
        yield run.interrupted()
        return
    run.feed.start(options.abort)
    try:
        while not run.over:
            for event in await run.step():
                yield event
    finally:
        await run.feed.close()


class _Run:
    def __init__(self, adapter: AgentAdapter, prompt: str, options: AgentOptions, keep: Keep) -> None:
        self._inbound = options.resume or None
        self._narrator = Narrator(adapter.agent, self._inbound)
        self._keep = keep
        self.feed: Feed[AgentEvent] = Feed([lambda: adapter.run(prompt, options)])
        self.over = False

    def interrupted(self) -> AgentEvent:
        """A `done` of our own; a token is never made out of a session id."""
        return self._narrator.done("interrupted", self._inbound)

    async def step(self) -> list[AgentEvent]:
        """What is to be told next."""
        await self.feed.arrival()
        if self.feed.aborted:
            return self._end([await self._drained() or self.interrupted()])
        if self.feed.is_empty:
            return self._short()
        event = self.feed.take()
        if not isinstance(event, AgentEvent):
            return self._failed(
                "ADAPTER_ERROR", f"the adapter gave a {type(event).__name__}, which is no event"
            )
        self._narrator.note(event)
        if event.type != "done":
            return [event]
        self._keep(_token(event))
        return self._end([event])

    async def _drained(self) -> AgentEvent | None:
        """The adapter's own `done`, where it gives one in time after an abort; all else is dropped."""
        with anyio.move_on_after(_DRAIN):
            while True:
                await self.feed.arrival(heeding_abort=False)
                if self.feed.is_empty:
                    return None
                event = self.feed.take()
                if isinstance(event, AgentEvent):
                    self._narrator.note(event)
                    if event.type == "done":
                        self._keep(_token(event))
                        return event
        return None

    def _short(self) -> list[AgentEvent]:
        """What is told of an adapter that came to its end without a `done`."""
        error = self.feed.error
        if error is None:
            return self._failed("MISSING_DONE", f"the adapter {self._narrator.agent} ended without a done")
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error  # meant for the program, not for this run
        return self._failed("ADAPTER_ERROR", told(error))

    def _failed(self, code: str, message: str) -> list[AgentEvent]:
        self._keep(None)
        return self._end([self._narrator.error(code, message), self._narrator.done("error")])

    def _end(self, events: list[AgentEvent]) -> list[AgentEvent]:
        self.over = True
        self.feed.cancel()
        return events


def told(error: BaseException) -> str:
    """An exception in words; of a group, what is in it.

    >>> told(ExceptionGroup("two", [ValueError("a"), KeyError()]))
    'ValueError: a; KeyError'
    """
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(told(one) for one in error.exceptions)
    try:
        said = str(error)
    except Exception as problem:
        said = ""  # its author made a mistake: its name must do
        _log.debug("an exception of type %s has no text", type(error).__name__, error=problem)
    if isinstance(error, GeminidsError) and said:
        return said  # written for people
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _token(done: AgentEvent) -> str | None:
    return _member(done.payload, "resume_token", "resumeToken") or None


def _member(payload: Any, name: str, in_json: str) -> str | None:
    """A member of a payload, which may be a struct of ours or a dict."""
    value = payload.get(in_json) if isinstance(payload, dict) else getattr(payload, name, None)
    return value if isinstance(value, str) else None


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


class AgentInstance:
    """One agent of a team. One run at a time; each goes on where the last has ended, unless it is told otherwise."""

    def __init__(
        self, adapter: AgentAdapter, defaults: AgentOptions | None = None, *, role: str | None = None
    ) -> None:
        self.adapter = adapter
        self.role = role or None
        self.defaults = defaults or AgentOptions()
        of_a_call = [name for name in ("resume", "abort") if getattr(self.defaults, name) is not None]
        if of_a_call:
            raise OptionsError([(name, "belongs to a call, not to an instance") for name in of_a_call])
        self._token: str | None = None
        self._active: object | None = None

    @property
    def resume_token(self) -> str | None:
        """What the next run goes on with."""
        return self._token

    async def run(self, prompt: str, options: AgentOptions | None = None) -> AsyncIterator[AgentEvent]:
        """The events of one run, each with the role. Raises on the first step where another run goes on."""
        if self._active is not None:
            raise GeminidsError(
                f"{self.role or self.adapter.agent} is running already",
                hint="Read that run to its end, or make another instance.",
            )
        self._active = mine = object()
        events = hardened(self.adapter, prompt, merged(self.defaults, options, self._token), self._keep)
        try:
            async for event in events:
                if event.type == "done":
                    self._let_go(
                        mine
                    )  # whoever has the `done` may begin anew, also without another step here
                yield event if event.role == self.role else msgspec.structs.replace(event, role=self.role)
        finally:
            self._let_go(mine)
            await events.aclose()  # type: ignore[attr-defined]

    def _keep(self, token: str | None) -> None:
        self._token = token

    def _let_go(self, mine: object) -> None:
        if self._active is mine:
            self._active = None
