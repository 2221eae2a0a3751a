"""Run any adapter, directly or as an `AgentInstance`. Each run ends with exactly one `done` event."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, runtime_checkable

import anyio
import msgspec

from geminids.adapters.sublang.feed import Feed
from geminids.adapters.sublang.options import AgentOptions, merge_options
from geminids.dialects.agent_events.model import AgentEvent, Done, Error
from geminids.dialects.agent_events.usage import AgentUsage
from geminids.errors import GeminidsError, OptionsError
from geminids.ids import new_run_id
from geminids.log import get_logger

__all__ = ["AgentAdapter", "AgentInstance", "EventMaker", "KeepToken", "describe_error", "run_adapter"]

_log = get_logger("adapters")

# Seconds that an adapter without an `abort_timeout` has to end after an abort.
_ABORT_TIMEOUT = 0.5

KeepToken = Callable[[str | None], None]
"""A callback for the end of a run: it receives the token that the next run of the instance resumes.

With None, the next run starts a new session. If the token that is already stored stays valid, the
callback is not called.
"""


@runtime_checkable
class AgentAdapter(Protocol):
    """The interface of an adapter: an object that runs one kind of agent.

    `run` returns an async iterator of events; the last event is `done`. The caller of `run` closes
    the iterator. `is_available` returns whether the agent can be run.

    An adapter may have an attribute `abort_timeout`: how many seconds `run_agent` waits after an
    abort for the adapter's own `done`. Without the attribute, `run_agent` waits for half a second.
    """

    @property
    def agent(self) -> str:
        """The name of the agent: its key in the registry, and the field `agent` of its events."""
        ...

    def run(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]: ...

    def is_available(self) -> bool: ...


class EventMaker:
    """Makes `error` and `done` events for an adapter that ended without its own `done`."""

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


async def run_adapter(
    adapter: AgentAdapter, prompt: str, options: AgentOptions, keep_token: KeepToken | None = None
) -> AsyncIterator[AgentEvent]:
    """Yield the events of one run. The last event is `done`, even if the adapter fails or sends no
    `done`.

    An exception of the adapter becomes an `error` event. `keep_token` is called with the token for
    the next run (see `KeepToken`).
    """
    run = _Run(adapter, prompt, options, keep_token or (lambda token: None))
    if options.abort_signal is not None and options.abort_signal.is_set():
        yield run.interrupted()
        return
    run.feed.start(options.abort_signal)
    try:
        while not run.over:
            for event in await run.step():
                yield event
    finally:
        await run.feed.close()


class _Run:
    def __init__(
        self, adapter: AgentAdapter, prompt: str, options: AgentOptions, keep_token: KeepToken
    ) -> None:
        self._resume_token = options.resume or None
        self._maker = EventMaker(adapter.agent, self._resume_token)
        self._keep_token = keep_token
        self._abort_timeout = float(getattr(adapter, "abort_timeout", _ABORT_TIMEOUT))
        self.feed: Feed[AgentEvent] = Feed([lambda: adapter.run(prompt, options)])
        self.over = False
        self._has_yielded = False

    def interrupted(self) -> AgentEvent:
        """Return a `done` event for an aborted run. It contains the resume token with which the run
        was started."""
        return self._maker.done("interrupted", self._resume_token)

    async def step(self) -> list[AgentEvent]:
        """Wait for the next event of the adapter, and return the events to emit for it."""
        await self.feed.arrival()
        if self.feed.aborted:
            return self._end(await self._drained() or [self.interrupted()])
        if self.feed.is_empty:
            return self._ended_early()
        event = self.feed.take()
        if not isinstance(event, AgentEvent):
            return self._failed(
                "ADAPTER_ERROR",
                f"the adapter yielded an object of type {type(event).__name__}, which is not an event",
            )
        self._maker.note(event)
        self._has_yielded = True
        if event.type != "done":
            return [event]
        self._keep_token(_token(event))
        return self._end([event])

    async def _drained(self) -> list[AgentEvent]:
        """Wait up to `abort_timeout` seconds after an abort for the adapter's own `done` event, and
        return this event. If no event was yielded before the abort, return `init` too.

        Return an empty list if the adapter ends without a `done`, fails, or needs more time. Other
        events that arrive in this time are dropped.
        """
        first: list[AgentEvent] = []
        with anyio.move_on_after(self._abort_timeout):
            while True:
                await self.feed.arrival(until_abort=False)
                if self.feed.is_empty:
                    return []
                event = self.feed.take()
                if isinstance(event, AgentEvent):
                    self._maker.note(event)
                    if event.type == "init" and not self._has_yielded:
                        first.append(event)
                    if event.type == "done":
                        self._keep_token(_token(event))
                        return [*first, event]
        return []

    def _ended_early(self) -> list[AgentEvent]:
        """Return an `error` and a `done` event for an adapter that ended without its own `done`.
        Raise the adapter's error again if it is Ctrl-C or `SystemExit`."""
        error = self.feed.error
        if error is None:
            return self._failed("MISSING_DONE", f"the adapter {self._maker.agent} ended without a done event")
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error  # meant for the program, not for this run
        return self._failed("ADAPTER_ERROR", describe_error(error))

    def _failed(self, code: str, message: str) -> list[AgentEvent]:
        self._keep_token(None)
        return self._end([self._maker.error(code, message), self._maker.done("error")])

    def _end(self, events: list[AgentEvent]) -> list[AgentEvent]:
        self.over = True
        self.feed.cancel()
        return events


def describe_error(error: BaseException) -> str:
    """Return a text with the type and the message of an exception. For an exception group, describe
    each member.

    For an error of geminids, the text is only the message.

    >>> describe_error(ExceptionGroup("two", [ValueError("a"), KeyError()]))
    'ValueError: a; KeyError'
    """
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe_error(member) for member in error.exceptions)
    try:
        text = str(error)
    except Exception as problem:
        text = ""  # its `__str__` raises: use only the name of the type
        _log.debug("an exception of type %s has no text", type(error).__name__, error=problem)
    if isinstance(error, GeminidsError) and text:
        return text  # this message is already written for people
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _token(done: AgentEvent) -> str | None:
    return _member(done.payload, "resume_token", "resumeToken") or None


def _member(payload: Any, name: str, in_json: str) -> str | None:
    """Return the text in a field of a payload; None if the field is missing or contains no text.

    The payload is one of our structs, with the field `name`, or a dict, with the key `in_json`.
    """
    value = payload.get(in_json) if isinstance(payload, dict) else getattr(payload, name, None)
    return value if isinstance(value, str) else None


class AgentInstance:
    """An adapter with default options and a role. Its runs continue one conversation.

    By default, each run resumes the session of the previous run. Only one run can be active at a
    time.
    """

    def __init__(
        self, adapter: AgentAdapter, defaults: AgentOptions | None = None, *, role: str | None = None
    ) -> None:
        self.adapter = adapter
        self.role = role or None
        self.defaults = defaults or AgentOptions()
        call_only = [name for name in ("resume", "abort_signal") if getattr(self.defaults, name) is not None]
        if call_only:
            raise OptionsError([(name, "can be set for a run, not for an instance") for name in call_only])
        self._token: str | None = None
        self._active: object | None = None

    @property
    def resume_token(self) -> str | None:
        """The token of the session that the next run resumes; None if the next run starts a new
        session."""
        return self._token

    async def run(self, prompt: str, options: AgentOptions | None = None) -> AsyncIterator[AgentEvent]:
        """Yield the events of one run. Each event contains the role of the instance.

        If another run of this instance is active, reading the first event raises `GeminidsError`.
        """
        if self._active is not None:
            raise GeminidsError(
                f"{self.role or self.adapter.agent} is already running",
                hint="Read all events of that run first, or create another instance.",
            )
        self._active = this_run = object()
        merged = merge_options(self.defaults, options, self._token)
        events = run_adapter(self.adapter, prompt, merged, self._keep)
        try:
            async for event in events:
                if event.type == "done":
                    # The caller may start the next run as soon as it has the `done`.
                    self._release(this_run)
                yield event if event.role == self.role else msgspec.structs.replace(event, role=self.role)
        finally:
            self._release(this_run)
            await events.aclose()  # type: ignore[attr-defined]

    def _keep(self, token: str | None) -> None:
        self._token = token

    def _release(self, this_run: object) -> None:
        if self._active is this_run:
            self._active = None
