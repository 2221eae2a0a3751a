"""A budget is a hard limit: a request over budget is not sent, and the run leaves no process
behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import geminids
from collect_events import select_events
from fake_google import FakeGoogle
from gateway_runs import KEY, RELEASES, options_for
from geminids import Notice, ToolFinished, ToolStarted
from geminids.gateway import Call, Reply, ReplyUsage, Request

pytestmark = pytest.mark.real

deep = pytest.mark.deep


def thirty_requests(request: Request) -> Reply | None:
    """Call a tool in each of thirty requests. Each call differs, so that the CLI does not detect a
    loop."""
    if request.method != "stream":
        return None
    turn = len(request.turn_results)
    if turn >= 29:
        return Reply(text="done")
    call = Call("glob", {"pattern": f"*.x{turn}"})
    return Reply(calls=[call], usage=ReplyUsage(input=12_000, output=100, cached=0))


def assert_over_budget(result: Any, *words: str) -> None:
    assert result.outcome == "over_budget", result.failure
    assert result.failure.kind == "over_budget" and result.failure.hint
    assert all(word in f"{result.reason} {result.failure.hint}" for word in words), result.failure


@pytest.mark.parametrize("version", RELEASES)
def test_a_budget_for_ten_of_thirty_requests(make_world: Any, version: str) -> None:
    """A run with a budget of ten requests sends exactly ten and finishes every tool. Only its
    result gives the reason, no notice repeats it. (A fixture of all tests checks that no process is
    left.)"""
    world = make_world(version)
    with FakeGoogle(thirty_requests, with_key=KEY) as google:
        events: list[Any] = list(geminids.stream_sync("hello", options_for(world, google, max_requests=10)))
        assert len([asked for asked in google.asked if asked.request.method == "stream"]) == 10
        assert google.wait_until(lambda: google.open == 0)
    assert_over_budget(events[-1], "this run", "10 of 10 requests")
    assert events[-1].usage.requests == 10
    messages = [one.message for one in select_events(events, Notice) if one.level != "debug"]
    assert not [line for line in messages if "would exceed the budget" in line], messages
    started = {event.id for event in select_events(events, ToolStarted)}
    assert started == {event.id for event in select_events(events, ToolFinished)}


def test_a_budget_for_all_thirty_requests(make_world: Any) -> None:
    """A run within its budget succeeds. (It sends more than thirty requests, because after thirty
    turns the CLI asks a model whether it loops.)"""
    world = make_world("0.61.0")
    with FakeGoogle(thirty_requests, with_key=KEY) as google:
        result = geminids.ask_sync("hello", options_for(world, google, max_requests=32, max_tokens=10**7))
    assert (result.outcome, result.answer) == ("success", "done")


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"max_tokens": 50_000}, ("of 50,000 tokens",)),
        pytest.param({"max_budget": 0.05}, ("of $0.05",), marks=deep),
    ],
)
def test_budgets_in_tokens_and_dollars(
    make_world: Any, limit: dict[str, Any], words: tuple[str, ...]
) -> None:
    """A run with a budget in tokens or dollars stops before a request that would exceed it."""
    world = make_world("0.61.0")
    with FakeGoogle(thirty_requests, with_key=KEY) as google:
        result = geminids.ask_sync("hello", options_for(world, google, **limit))
        sent = len(google.asked)
    assert_over_budget(result, *words)
    assert result.usage is not None
    assert result.usage.requests == sent
    assert (result.usage.total or 0) <= limit.get("max_tokens", 10**9)


def test_the_budget_holds_on_the_warm_transport(make_world: Any) -> None:
    """The budget holds for a run with `on_permission` and for each chat. The turns of a chat share
    one budget: after it is spent, a turn sends nothing."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> list[geminids.Result]:
        options = options_for(world, google, max_requests=10)
        async with geminids.open_run("hello", options, on_permission=lambda ask: "allow") as run:
            async for _ in run:
                pass
        async with geminids.Pool(options) as pool, pool.chat() as chat, pool.chat() as other:
            turns = [await chat.ask("hello"), await chat.ask("and now?")]
            sent = len(google.asked)
            assert (await other.ask("hello")).outcome == "over_budget", "another chat has its own budget"
            assert len(google.asked) == sent + 10
        return [run.result, *turns]

    with FakeGoogle(thirty_requests, with_key=KEY) as google:
        single, first, second = anyio.run(main, google)
        assert len(google.asked) == 30
    assert_over_budget(single, "this run", "10 of 10 requests")
    assert_over_budget(first, "this chat", "10 of 10 requests")
    assert_over_budget(second, "this chat")
    assert second.usage is None


def test_two_runs_and_a_chat_share_a_day(make_world: Any) -> None:
    """Two runs and a chat share the day's budget. They stop together, after exactly the allowed
    number of requests, and a later run sends nothing."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> list[geminids.Result]:
        results: list[geminids.Result] = []

        async def run(ask: Callable[..., Any], *args: Any) -> None:
            results.append(await ask(*args))

        options = options_for(world, google, day_requests=12)
        async with geminids.Pool(options) as pool, pool.chat() as chat, anyio.create_task_group() as tasks:
            tasks.start_soon(run, geminids.ask, "hello", options)
            tasks.start_soon(run, geminids.ask, "hello", options)
            tasks.start_soon(run, chat.ask, "hello")
        results.append(await geminids.ask("hello", options))
        return results

    with FakeGoogle(thirty_requests, with_key=KEY) as google:
        results = anyio.run(main, google)
        assert len(google.asked) == 12
    for result in results:
        assert_over_budget(result, "day", "12 of 12 requests")
    assert results[-1].usage is None


@pytest.mark.deep
def test_several_runs_share_a_budget(make_world: Any) -> None:
    """Several runs can share one `Budget`: together they send no more requests than it allows."""
    world = make_world("0.61.0")
    budget = geminids.Budget(requests=7)

    async def main(google: FakeGoogle) -> list[geminids.Result]:
        results: list[geminids.Result] = []

        async def run_once() -> None:
            results.append(await geminids.ask("hello", options_for(world, google), budget=budget))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(run_once)
        return results

    with FakeGoogle(thirty_requests, with_key=KEY) as google:
        results = anyio.run(main, google)
        assert len(google.asked) == 7
    assert [result.outcome for result in results] == ["over_budget"] * 3
    assert budget.spent.requests == 7


@pytest.mark.deep
def test_a_model_that_is_not_allowed(make_world: Any) -> None:
    """A request for a model outside `only_models` is not sent, and the failure names the model."""
    world = make_world("0.61.0")
    with FakeGoogle(thirty_requests, with_key=KEY) as google:
        result = geminids.ask_sync("hello", options_for(world, google, only_models=("gemini-2*",)))
        assert google.asked == []
        allowed = geminids.ask_sync(
            "hello", options_for(world, google, only_models=("gemini-*-flash",), max_requests=1)
        )
        assert len(google.asked) == 1
    assert result.failure is not None
    assert (result.failure.kind, "gemini-3.8-flash" in result.failure.message) == ("config", True)
    assert allowed.outcome == "over_budget"


@pytest.mark.deep
def test_all_runs_wait_after_a_429(make_world: Any) -> None:
    """After a 429 with RetryInfo, no run of this process sends a request to that model before the
    given time is over."""
    world = make_world("0.61.0")
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}
    refusals = iter([Reply(status=429, error="Resource exhausted", details=[wait])])

    def script(request: Request) -> Reply | None:
        return next(refusals, Reply(text="done")) if request.method == "stream" else None

    async def main(google: FakeGoogle) -> tuple[geminids.Result, list[Any]]:
        events: list[Any] = []
        results: list[geminids.Result] = []

        async def first() -> None:
            results.append(await geminids.ask("hello", options_for(world, google, gateway="on")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            while not any(asked.status == 429 for asked in google.asked):
                await anyio.sleep(0.01)
            async with geminids.open_run("hello", options_for(world, google, gateway="on")) as run:
                events.extend([event async for event in run])
        return results[0], events

    with FakeGoogle(script, with_key=KEY) as google:
        result, events = anyio.run(main, google)
        times = [asked.at for asked in google.asked]
    assert result.ok, result.failure
    assert events[-1].outcome == "success", events[-1].failure
    assert len(times) == 3
    assert times[1] - times[0] >= 1.9, "a request was sent before the wait was over"
    assert [notice.code for notice in select_events(events, Notice, code="waiting")] in ([], ["waiting"])
