"""One run of any adapter, made safe: exactly one `done`, last, whatever the adapter does."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, runtime_checkable

import anyio

from geminids.dialects.adapters.feed import Feed
from geminids.dialects.adapters.options import AgentOptions
from geminids.dialects.agent_events.model import AgentEvent, Done, Error
from geminids.dialects.agent_events.usage import AgentUsage
from geminids.errors import GeminidsError
from geminids.ids import new_run_id
from geminids.log import get_logger

__all__ = ["AgentAdapter", "Keep", "Narrator", "hardened", "told"]

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
