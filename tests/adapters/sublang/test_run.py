"""Runs of any adapter: whatever it does, there is one `done`, and it is the last."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from geminids.adapters import run_agent
from geminids.adapters.sublang import AgentEvent, AgentOptions, Deadline, until_set
from geminids.adapters.sublang.feed import Feed
from geminids.errors import OptionsError
from made_up_agents import Letters, Parrot, event, ways

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def _all(adapter: Any, **options: Any) -> list[AgentEvent]:
    with anyio.fail_after(20):
        return [one async for one in run_agent(adapter, "a b", AgentOptions(**options))]


def _kinds(events: list[AgentEvent]) -> list[str]:
    return [one.type for one in events]


async def test_a_good_run_is_passed_on() -> None:
    """As it came, each event the very same."""
    parrot = Parrot()
    events = await _all(parrot, model="x")
    assert _kinds(events) == ["init", "text_delta", "text_delta", "done"]
    assert parrot.seen == [("a b", AgentOptions(model="x"))]
    assert events[-1].payload["resumeToken"] == "t-1"
    assert parrot.closed == 1


async def test_an_adapter_that_is_no_generator() -> None:
    """Anything that can be iterated will do."""
    events = await _all(Letters())
    assert [one.payload["delta"] for one in events[:-1]] == ["a", " ", "b"]


async def test_aborted_before_the_start() -> None:
    """The adapter is not called; one `done`, with the token that came in."""
    abort = anyio.Event()
    abort.set()
    parrot = Parrot()
    [done] = await _all(parrot, abort=abort, resume="t-0")
    assert (done.payload.status, done.payload.resume_token) == ("interrupted", "t-0")
    assert (done.payload.usage.tool_uses, done.payload.usage.tokens) == (0, None)
    [done] = await _all(parrot, abort=abort, resume="")
    assert done.payload.resume_token is None
    assert done.session_id
    assert parrot.seen == []


async def test_aborted_while_waiting() -> None:
    """An adapter that does not end by itself gets half a second; the `done` is ours, the token the old one."""
    parrot = Parrot(ways.hangs)
    before = time.monotonic()
    events = await _all(parrot, abort=Deadline(0.1), resume="t-0")
    assert 0.5 < time.monotonic() - before < 5
    assert _kinds(events) == ["init", "done"]
    done = events[-1]
    assert (done.payload.status, done.payload.resume_token, done.session_id) == ("interrupted", "t-0", "p-1")
    assert done.payload.duration_ms >= 500
    assert parrot.closed == 1


async def test_aborted_and_ended_by_itself() -> None:
    """The adapter's own `done` is used, and what it says before it is dropped."""
    events = await _all(Parrot(ways.heeds), abort=Deadline(0.1), resume="t-0")
    assert _kinds(events) == ["init", "done"]
    assert events[-1].payload == {
        "status": "interrupted",
        "usage": {"toolUses": 0},
        "durationMs": 1,
        "resumeToken": "t-own",
    }


async def test_signals_of_other_worlds() -> None:
    """A thread's event will do, and so will one that this event loop cannot wait for."""
    of_a_thread = threading.Event()
    threading.Timer(0.4, of_a_thread.set).start()  # later than the start, on a busy machine too
    assert _kinds(await _all(Parrot(ways.heeds), abort=of_a_thread)) == ["init", "done"]

    class Odd:
        def __init__(self) -> None:
            self._until = Deadline(0.4)

        def is_set(self) -> bool:
            return self._until.is_set()

        async def wait(self) -> None:
            raise RuntimeError("no running event loop")

    assert _kinds(await _all(Parrot(ways.heeds), abort=Odd())) == ["init", "done"]


async def test_an_abort_that_makes_the_adapter_fail() -> None:
    """It was an abort all the same."""

    async def way(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init")
        assert options.abort is not None
        await until_set(options.abort)
        raise ValueError("what now?")

    events = await _all(Parrot(way), abort=Deadline(0.1))
    assert _kinds(events) == ["init", "done"]
    assert (events[-1].payload.status, events[-1].payload.resume_token) == ("interrupted", None)


async def test_an_adapter_that_raises() -> None:
    """`ADAPTER_ERROR`, then a `done` that counts the tools that were seen."""
    events = await _all(Parrot(ways.raises), resume="t-0")
    assert _kinds(events) == ["init", "tool_use", "error", "done"]
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


async def test_an_adapter_that_raises_at_once() -> None:
    """Before there is an iterator: the same."""

    class Refusing(Letters):
        def run(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
            raise OptionsError([("model", "is odd")])

    error, done = await _all(Refusing())
    assert error.payload.code == "ADAPTER_ERROR"
    assert "model: is odd" in error.payload.message
    assert done.payload.status == "error"


async def test_an_adapter_that_stops_short() -> None:
    """`MISSING_DONE`, then a `done`."""
    events = await _all(Parrot(ways.stops_short))
    assert _kinds(events) == ["init", "error", "done"]
    assert (events[1].payload.code, events[2].payload.status) == ("MISSING_DONE", "error")


async def test_an_adapter_that_goes_on() -> None:
    """What it says or raises after `done` is dropped, and it is closed."""
    parrot = Parrot(ways.goes_on)
    assert _kinds(await _all(parrot)) == ["done"]
    assert parrot.closed == 1


async def test_an_adapter_that_gives_nonsense() -> None:
    """What is no event is a mistake of the adapter."""
    events = await _all(Parrot(ways.gives_nonsense))
    assert [one.payload.code for one in events if one.type == "error"] == ["ADAPTER_ERROR"]
    assert events[-1].type == "done"


class _Weird(BaseException):
    """No `Exception`, and nothing that anybody sent to end the program."""


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (_Weird("odd"), "_Weird: odd"),
        (GeneratorExit(), "GeneratorExit"),
        (_Mute(), "_Mute"),
        (ExceptionGroup("two", [ValueError("a"), KeyError()]), "ValueError: a; KeyError"),
        (BaseExceptionGroup("one", [_Weird("b")]), "_Weird: b"),
    ],
    ids=["base", "generator_exit", "mute", "group", "base_group"],
)
async def test_whatever_is_raised(error: BaseException, told: str) -> None:
    """It is told by its name and its words; of a group, what is in it; and the event loop lives on."""

    async def way(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init")
        raise error

    events = await _all(Parrot(way))
    assert _kinds(events) == ["init", "error", "done"]
    assert (events[1].payload.code, events[1].payload.message) == ("ADAPTER_ERROR", told)
    assert _kinds(await _all(Parrot()))[-1] == "done"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_what_is_meant_for_the_program(error: type[BaseException]) -> None:
    """Ctrl-C and an exit are raised to the reader, who is the program: they are no news of a run."""

    async def way(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init")
        raise error

    with pytest.raises(error):
        await _all(Parrot(way))
    assert _kinds(await _all(Parrot()))[-1] == "done"


async def test_none_is_no_end() -> None:
    """An adapter that gives None is at fault, and not at its end."""

    async def way(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield None  # type: ignore[misc]
        yield event("done", {})

    events = await _all(Parrot(way))
    assert events[0].payload.message == "the adapter yielded a NoneType, which is not an event"
    assert (events[0].payload.code, _kinds(events)) == ("ADAPTER_ERROR", ["error", "done"])


async def test_a_signal_that_breaks() -> None:
    """It counts as set: a run that nobody could stop would be worse than one that was stopped."""

    class Breaking:
        def __init__(self) -> None:
            self._asked = 0

        def is_set(self) -> bool:
            self._asked += 1
            if self._asked > 3:
                raise OSError("the pipe is gone")
            return False

    events = await _all(Parrot(ways.hangs), abort=Breaking())
    assert (_kinds(events), events[-1].payload.status) == (["init", "done"], "interrupted")


async def test_breaking_off_ends_the_run(anyio_backend: str) -> None:
    """Whoever leaves the loop has ended the run; trio alone wants to be told by `aclosing`."""
    parrot = Parrot(ways.hangs)
    if anyio_backend == "trio":
        async with aclosing(run_agent(parrot, "a")) as events:  # type: ignore[type-var]
            await anext(events)
        assert parrot.closed == 1
        return
    async for _ in run_agent(parrot, "a"):
        break
    gc.collect()
    with anyio.fail_after(5):
        while not parrot.closed:
            await anyio.sleep(0.01)


async def test_a_reader_that_is_cancelled() -> None:
    """A time-out around one step ends the run, and the adapter's own scopes are none of its business."""

    async def way(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 0)
            yield event("init")
            await anyio.sleep_forever()

    parrot = Parrot(way)
    events = run_agent(parrot, "a")
    with anyio.fail_after(5):
        assert (await anext(events)).type == "init"
    with anyio.move_on_after(0.05):
        await anext(events)
    assert parrot.closed == 1


async def test_a_slow_reader_bounds_the_memory() -> None:
    """The adapter waits when a thousand events are not read yet; all of them come, in their order."""
    given = 0

    async def way(prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        nonlocal given
        for number in range(5000):
            given = number
            yield event("text_delta", {"delta": number})
        yield event("done", {})

    events = run_agent(Parrot(way), "a")
    got = [(await anext(events)).payload["delta"]]
    await anyio.sleep(0.05)
    assert given <= 1001
    got += [one.payload["delta"] async for one in events if one.type != "done"]
    assert got == list(range(5000))


async def test_a_source_that_does_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for it, but not forever."""
    monkeypatch.setattr("geminids.adapters.sublang.feed._CLOSE_TIMEOUT", 0.1)
    free = anyio.Event()

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await free.wait()

    feed: Feed[int] = Feed([source])
    feed.start()
    await feed.arrival()
    assert feed.take() == 1
    with anyio.fail_after(5):
        await feed.close()
    free.set()
    await anyio.sleep(0.05)


async def test_a_deadline() -> None:
    """Is set when its time has come, and whoever waits for it goes on then."""
    signal = Deadline(0.05)
    assert not signal.is_set()
    await signal.wait()
    assert signal.is_set()
