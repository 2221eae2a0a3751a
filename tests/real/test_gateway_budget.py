"""A budget is a wall: the request that does not fit is never sent, and the run ends with nothing left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import geminids
from complete import of
from fake_google import FakeGoogle
from geminids import Notice, ToolFinished, ToolStarted
from geminids.gateway import Call, Reply, Request
from geminids.gateway import Usage as Told
from through_gateway import KEY, RELEASES, through

pytestmark = pytest.mark.real

deep = pytest.mark.deep


def thirty(request: Request) -> Reply | None:
    """A tool in each of thirty requests, each another call, so that nobody takes it for a loop."""
    if request.method != "stream":
        return None
    turn = len(request.turn_results)
    if turn >= 29:
        return Reply(text="done")
    call = Call("glob", {"pattern": f"*.x{turn}"})
    return Reply(calls=[call], usage=Told(input=12_000, output=100, cached=0))


def assert_over_budget(result: Any, *words: str) -> None:
    assert result.outcome == "over_budget", result.failure
    assert result.failure is None
    assert all(word in (result.reason or "") for word in words), result.reason


@pytest.mark.parametrize("version", RELEASES)
def test_room_for_ten_of_thirty(make_world: Any, version: str) -> None:
    """Exactly ten requests leave; every tool has its end; why it ended is said once; nothing is left (the fixture
    of all tests looks)."""
    world = make_world(version)
    with FakeGoogle(thirty, with_key=KEY) as google:
        events: list[Any] = list(geminids.stream_sync("hello", through(world, google, max_requests=10)))
        assert len([asked for asked in google.asked if asked.request.method == "stream"]) == 10
        assert google.wait_until(lambda: google.open == 0)
    assert_over_budget(events[-1], "this run", "10 of 10 requests")
    assert events[-1].usage.requests == 10
    loud = [one.message for one in of(events, Notice) if one.level != "debug"]
    assert not [said for said in loud if "would exceed the budget" in said], loud
    started = {event.id for event in of(events, ToolStarted)}
    assert started == {event.id for event in of(events, ToolFinished)}


def test_room_for_thirty(make_world: Any) -> None:
    """A budget that is large enough is not felt. (After thirty turns the CLI asks a model whether it is a loop.)"""
    world = make_world("0.61.0")
    with FakeGoogle(thirty, with_key=KEY) as google:
        result = geminids.ask_sync("hello", through(world, google, max_requests=32, max_tokens=10**7))
    assert (result.outcome, result.answer) == ("success", "done")


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"max_tokens": 50_000}, ("of 50,000 tokens",)),
        pytest.param({"max_budget": 0.05}, ("of $0.05",), marks=deep),
    ],
)
def test_tokens_and_dollars(make_world: Any, limit: dict[str, Any], words: tuple[str, ...]) -> None:
    """What is spent stays below the limit by what the next request would take at least."""
    world = make_world("0.61.0")
    with FakeGoogle(thirty, with_key=KEY) as google:
        result = geminids.ask_sync("hello", through(world, google, **limit))
        sent = len(google.asked)
    assert_over_budget(result, *words)
    assert result.usage is not None
    assert result.usage.requests == sent
    assert (result.usage.total or 0) <= limit.get("max_tokens", 10**9)


def test_on_the_warm_lane(make_world: Any) -> None:
    """A run that asks somebody, and a chat: the chat's turns share one budget, and further ones send nothing."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> list[geminids.Result]:
        options = through(world, google, max_requests=10)
        async with geminids.open_run("hello", options, on_permission=lambda ask: "allow") as run:
            async for _ in run:
                pass
        async with geminids.Pool(options) as pool, pool.chat() as chat, pool.chat() as other:
            turns = [await chat.ask("hello"), await chat.ask("and now?")]
            sent = len(google.asked)
            assert (await other.ask("hello")).outcome == "over_budget", "it has a budget of its own"
            assert len(google.asked) == sent + 10
        return [run.result, *turns]

    with FakeGoogle(thirty, with_key=KEY) as google:
        single, first, second = anyio.run(main, google)
        assert len(google.asked) == 30
    assert_over_budget(single, "this run", "10 of 10 requests")
    assert_over_budget(first, "this chat", "10 of 10 requests")
    assert_over_budget(second, "this chat")
    assert second.usage is None


def test_two_runs_and_a_chat_share_a_day(make_world: Any) -> None:
    """They stop together, and the day's requests are exactly as many as allowed; a run of another process too."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> list[geminids.Result]:
        results: list[geminids.Result] = []

        async def run(ask: Callable[..., Any], *args: Any) -> None:
            results.append(await ask(*args))

        options = through(world, google, day_requests=12)
        async with geminids.Pool(options) as pool, pool.chat() as chat, anyio.create_task_group() as tasks:
            tasks.start_soon(run, geminids.ask, "hello", options)
            tasks.start_soon(run, geminids.ask, "hello", options)
            tasks.start_soon(run, chat.ask, "hello")
        results.append(await geminids.ask("hello", options))
        return results

    with FakeGoogle(thirty, with_key=KEY) as google:
        results = anyio.run(main, google)
        assert len(google.asked) == 12
    for result in results:
        assert_over_budget(result, "day", "12 of 12 requests")
    assert results[-1].usage is None


@pytest.mark.deep
def test_a_budget_that_a_batch_shares(make_world: Any) -> None:
    """A `Budget` in the hands of several runs."""
    world = make_world("0.61.0")
    budget = geminids.Budget(requests=7)

    async def main(google: FakeGoogle) -> list[geminids.Result]:
        results: list[geminids.Result] = []

        async def one() -> None:
            results.append(await geminids.ask("hello", through(world, google), budget=budget))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(one)
        return results

    with FakeGoogle(thirty, with_key=KEY) as google:
        results = anyio.run(main, google)
        assert len(google.asked) == 7
    assert [result.outcome for result in results] == ["over_budget"] * 3
    assert budget.spent.requests == 7


@pytest.mark.deep
def test_a_model_that_is_not_allowed(make_world: Any) -> None:
    """Its request never leaves, and the run says which it was."""
    world = make_world("0.61.0")
    with FakeGoogle(thirty, with_key=KEY) as google:
        result = geminids.ask_sync("hello", through(world, google, only_models=("gemini-2*",)))
        assert google.asked == []
        allowed = geminids.ask_sync(
            "hello", through(world, google, only_models=("gemini-*-flash",), max_requests=1)
        )
        assert len(google.asked) == 1
    assert result.failure is not None
    assert (result.failure.kind, "gemini-3.8-flash" in result.failure.message) == ("config", True)
    assert allowed.outcome == "over_budget"


@pytest.mark.deep
def test_nobody_asks_while_the_api_says_wait(make_world: Any) -> None:
    """After a 429 with RetryInfo no run of this process asks that model before the time is up."""
    world = make_world("0.61.0")
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}
    refusals = iter([Reply(status=429, error="Resource exhausted", details=[wait])])

    def script(request: Request) -> Reply | None:
        return next(refusals, Reply(text="done")) if request.method == "stream" else None

    async def main(google: FakeGoogle) -> tuple[geminids.Result, list[Any]]:
        events: list[Any] = []
        results: list[geminids.Result] = []

        async def first() -> None:
            results.append(await geminids.ask("hello", through(world, google, gateway="on")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            while not any(asked.status == 429 for asked in google.asked):
                await anyio.sleep(0.01)
            async with geminids.open_run("hello", through(world, google, gateway="on")) as run:
                events.extend([event async for event in run])
        return results[0], events

    with FakeGoogle(script, with_key=KEY) as google:
        result, events = anyio.run(main, google)
        times = [asked.at for asked in google.asked]
    assert result.ok, result.failure
    assert events[-1].outcome == "success", events[-1].failure
    assert len(times) == 3
    assert times[1] - times[0] >= 1.9, "the first one after the refusal has waited, whoever sent it"
    assert [notice.code for notice in of(events, Notice, code="waiting")] in ([], ["waiting"])
