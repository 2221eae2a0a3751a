"""Tests of `run_agent`: the last event is always the only `done`, whatever the adapter does."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from fake_agents import FakeAgent, IteratorAgent, behaviours, done, event
from geminids.adapters import run_agent
from geminids.adapters.sublang import AgentEvent, AgentOptions, Deadline, until_set
from geminids.adapters.sublang.feed import Feed
from geminids.errors import OptionsError

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def _collect(adapter: Any, **options: Any) -> list[AgentEvent]:
    with anyio.fail_after(20):
        return [one async for one in run_agent(adapter, "a b", AgentOptions(**options))]


def _types(events: list[AgentEvent]) -> list[str]:
    return [one.type for one in events]


async def test_events_are_forwarded_unchanged() -> None:
    """The events of a well-behaved adapter are forwarded unchanged."""
    agent = FakeAgent()
    events = await _collect(agent, model="x")
    assert _types(events) == ["init", "text_delta", "text_delta", "done"]
    assert agent.seen == [("a b", AgentOptions(model="x"))]
    assert events[-1].payload["resumeToken"] == "t-1"
    assert agent.closed == 1


async def test_adapter_without_a_generator() -> None:
    """`run` of an adapter may return any async iterator."""
    events = await _collect(IteratorAgent())
    assert [one.payload["delta"] for one in events[:-1]] == ["a", " ", "b"]


async def test_abort_before_the_start() -> None:
    """If the abort is set before the start, the adapter is not called.
    The only event is `done` with the given resume token."""
    abort = anyio.Event()
    abort.set()
    agent = FakeAgent()
    [done] = await _collect(agent, abort_signal=abort, resume="t-0")
    assert (done.payload.status, done.payload.resume_token) == ("interrupted", "t-0")
    assert (done.payload.usage.tool_uses, done.payload.usage.tokens) == (0, None)
    [done] = await _collect(agent, abort_signal=abort, resume="")
    assert done.payload.resume_token is None
    assert done.session_id
    assert agent.seen == []


async def test_abort_of_a_hanging_adapter() -> None:
    """An adapter that ignores the abort gets half a second.
    The added `done` has the old resume token."""
    agent = FakeAgent(behaviours.hangs)
    started = time.monotonic()
    events = await _collect(agent, abort_signal=Deadline(0.1), resume="t-0")
    assert 0.5 < time.monotonic() - started < 5
    assert _types(events) == ["init", "done"]
    done = events[-1]
    assert (done.payload.status, done.payload.resume_token, done.session_id) == ("interrupted", "t-0", "p-1")
    assert done.payload.duration_ms >= 500
    assert agent.closed == 1


class _SlowToEnd(FakeAgent):
    """An agent that needs 0.8 seconds to end after an abort."""

    def __init__(self, abort_timeout: float) -> None:
        super().__init__(self._behave)
        self.abort_timeout = abort_timeout

    async def _behave(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init")
        assert options.abort_signal is not None
        await until_set(options.abort_signal)
        await anyio.sleep(0.8)
        yield done("interrupted", "t-own")


async def test_abort_timeout_of_the_adapter() -> None:
    """After an abort, `run_agent` waits for the adapter's own `done` as long as the adapter asks
    for, and no longer."""
    patient = await _collect(_SlowToEnd(abort_timeout=20), abort_signal=Deadline(0.1), resume="t-0")
    assert _types(patient) == ["init", "done"]
    assert patient[-1].payload["resumeToken"] == "t-own"
    short = await _collect(_SlowToEnd(abort_timeout=0.1), abort_signal=Deadline(0.1), resume="t-0")
    assert _types(short) == ["init", "done"]
    assert short[-1].payload.resume_token == "t-0"


async def test_abort_that_the_adapter_handles() -> None:
    """After an abort, the adapter's own `done` is used, and its other events are dropped."""
    events = await _collect(FakeAgent(behaviours.heeds), abort_signal=Deadline(0.1), resume="t-0")
    assert _types(events) == ["init", "done"]
    assert events[-1].payload == {
        "status": "interrupted",
        "usage": {"toolUses": 0},
        "durationMs": 1,
        "resumeToken": "t-own",
    }


async def test_other_abort_signals() -> None:
    """The abort signal may be a `threading.Event`, or one whose `wait` does
    not work in this loop."""
    thread_event = threading.Event()
    threading.Timer(0.4, thread_event.set).start()  # later than the start, on a busy machine too
    assert _types(await _collect(FakeAgent(behaviours.heeds), abort_signal=thread_event)) == ["init", "done"]

    class UnwaitableSignal:
        def __init__(self) -> None:
            self._until = Deadline(0.4)

        def is_set(self) -> bool:
            return self._until.is_set()

        async def wait(self) -> None:
            raise RuntimeError("no running event loop")

    assert _types(await _collect(FakeAgent(behaviours.heeds), abort_signal=UnwaitableSignal())) == [
        "init",
        "done",
    ]


async def test_adapter_fails_after_an_abort() -> None:
    """If the adapter raises after an abort, the run still counts as interrupted."""

    async def behaviour(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init")
        assert options.abort_signal is not None
        await until_set(options.abort_signal)
        raise ValueError("what now?")

    events = await _collect(FakeAgent(behaviour), abort_signal=Deadline(0.1))
    assert _types(events) == ["init", "done"]
    assert (events[-1].payload.status, events[-1].payload.resume_token) == ("interrupted", None)


async def test_adapter_raises() -> None:
    """If the adapter raises, an `ADAPTER_ERROR` and a `done` follow, with
    the count of tool uses."""
    events = await _collect(FakeAgent(behaviours.raises), resume="t-0")
    assert _types(events) == ["init", "tool_use", "error", "done"]
    error, done = (one.payload for one in events[2:])
    assert (error.code, error.recoverable, error.message) == (
        "ADAPTER_ERROR",
        False,
        "ValueError: out of seed",
    )
    assert (done.status, done.usage.tool_uses, done.usage.tokens, done.resume_token) == (
        "error",
        1,
        None,
        None,
    )
    assert {one.session_id for one in events} == {"p-1"}


async def test_adapter_raises_in_run() -> None:
    """If `run` raises before it returns an iterator, an `ADAPTER_ERROR` and
    a `done` are reported."""

    class RefusingAgent(IteratorAgent):
        def run(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
            raise OptionsError([("model", "is odd")])

    error, done = await _collect(RefusingAgent())
    assert error.payload.code == "ADAPTER_ERROR"
    assert "model: is odd" in error.payload.message
    assert done.payload.status == "error"


async def test_missing_done() -> None:
    """If the adapter ends without `done`, a `MISSING_DONE` error and a `done` are added."""
    events = await _collect(FakeAgent(behaviours.stops_short))
    assert _types(events) == ["init", "error", "done"]
    assert (events[1].payload.code, events[2].payload.status) == ("MISSING_DONE", "error")


async def test_events_after_done_are_dropped() -> None:
    """Events and errors after `done` are dropped, and the adapter is closed."""
    agent = FakeAgent(behaviours.goes_on)
    assert _types(await _collect(agent)) == ["done"]
    assert agent.closed == 1


async def test_adapter_yields_a_non_event() -> None:
    """If the adapter yields something that is not an event, an `ADAPTER_ERROR` is reported."""
    events = await _collect(FakeAgent(behaviours.gives_nonsense))
    assert [one.payload.code for one in events if one.type == "error"] == ["ADAPTER_ERROR"]
    assert events[-1].type == "done"


class _CustomBaseException(BaseException):
    """An error that is neither an `Exception` nor a request to end the program."""


class _WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (_CustomBaseException("odd"), "_CustomBaseException: odd"),
        (GeneratorExit(), "GeneratorExit"),
        (_WithoutText(), "_WithoutText"),
        (ExceptionGroup("two", [ValueError("a"), KeyError()]), "ValueError: a; KeyError"),
        (BaseExceptionGroup("one", [_CustomBaseException("b")]), "_CustomBaseException: b"),
    ],
    ids=["base", "generator_exit", "mute", "group", "base_group"],
)
async def test_reported_errors(error: BaseException, message: str) -> None:
    """Any exception is reported by name and text, and a group by its members.
    The loop continues."""

    async def behaviour(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init")
        raise error

    events = await _collect(FakeAgent(behaviour))
    assert _types(events) == ["init", "error", "done"]
    assert (events[1].payload.code, events[1].payload.message) == ("ADAPTER_ERROR", message)
    assert _types(await _collect(FakeAgent()))[-1] == "done"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_exits_are_raised(error: type[BaseException]) -> None:
    """KeyboardInterrupt and SystemExit are raised to the caller and not reported as events."""

    async def behaviour(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init")
        raise error

    with pytest.raises(error):
        await _collect(FakeAgent(behaviour))
    assert _types(await _collect(FakeAgent()))[-1] == "done"


async def test_adapter_yields_none() -> None:
    """If the adapter yields None, that is an error and not the end of the run."""

    async def behaviour(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield None  # type: ignore[misc]
        yield event("done", {})

    events = await _collect(FakeAgent(behaviour))
    assert (
        events[0].payload.message == "the adapter yielded an object of type NoneType, which is not an event"
    )
    assert (events[0].payload.code, _types(events)) == ("ADAPTER_ERROR", ["error", "done"])


async def test_failing_abort_signal() -> None:
    """An abort signal that raises an error counts as set."""

    class FailingSignal:
        def __init__(self) -> None:
            self._calls = 0

        def is_set(self) -> bool:
            self._calls += 1
            if self._calls > 3:
                raise OSError("the pipe is gone")
            return False

    events = await _collect(FakeAgent(behaviours.hangs), abort_signal=FailingSignal())
    assert (_types(events), events[-1].payload.status) == (["init", "done"], "interrupted")


async def test_leaving_the_loop_ends_the_run(anyio_backend: str) -> None:
    """Leaving the `async for` loop ends the run. On trio, the caller needs `aclosing`."""
    agent = FakeAgent(behaviours.hangs)
    if anyio_backend == "trio":
        async with aclosing(run_agent(agent, "a")) as events:  # type: ignore[type-var]
            await anext(events)
        assert agent.closed == 1
        return
    async for _ in run_agent(agent, "a"):
        break
    gc.collect()
    with anyio.fail_after(5):
        while not agent.closed:
            await anyio.sleep(0.01)


async def test_cancelled_reader_ends_the_run() -> None:
    """A timeout of the reader ends the run, even if the adapter uses its own task group."""

    async def behaviour(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 0)
            yield event("init")
            await anyio.sleep_forever()

    agent = FakeAgent(behaviour)
    events = run_agent(agent, "a")
    with anyio.fail_after(5):
        assert (await anext(events)).type == "init"
    with anyio.move_on_after(0.05):
        await anext(events)
    assert agent.closed == 1


async def test_slow_reader_limits_the_queue() -> None:
    """The adapter waits while about 1,000 events are unread. All events arrive in order."""
    yielded = 0

    async def behaviour(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        nonlocal yielded
        for number in range(5000):
            yielded = number
            yield event("text_delta", {"delta": number})
        yield event("done", {})

    events = run_agent(FakeAgent(behaviour), "a")
    deltas = [(await anext(events)).payload["delta"]]
    await anyio.sleep(0.05)
    assert yielded <= 1001
    deltas += [one.payload["delta"] async for one in events if one.type != "done"]
    assert deltas == list(range(5000))


async def test_closing_a_source_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for a hanging source only for a limited time."""
    monkeypatch.setattr("geminids.adapters.sublang.feed._CLOSE_TIMEOUT", 0.1)
    release = anyio.Event()

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await release.wait()

    feed: Feed[int] = Feed([source])
    feed.start()
    await feed.arrival()
    assert feed.take() == 1
    with anyio.fail_after(5):
        await feed.close()
    release.set()
    await anyio.sleep(0.05)


async def test_deadline() -> None:
    """A `Deadline` is set when its time is over, and `wait` returns then."""
    signal = Deadline(0.05)
    assert not signal.is_set()
    await signal.wait()
    assert signal.is_set()
