"""Budgets without the gateway: within one request of the limit, on both lanes, and nothing is left."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Any

import anyio
import pytest

import geminids
from complete import of
from fake_google import FakeGoogle
from fake_sign_ins import FakeCodeAssist, FakeVertex
from geminids import Notice, Started, TokensUsed, ToolFinished
from geminids.gateway import Call, Reply, Request
from geminids.gateway import Usage as Told
from geminids.gateway.told import Counts
from geminids.process.marker import MARKER
from geminids.process.tree import marked

pytestmark = pytest.mark.real

KEY = "AIzaSy-not-a-real-key-0123456789"
PRO = "gemini-2.5-pro"
deep = pytest.mark.deep
# 12,000 of input at $1.25 a million, 100 of output at $10.
EACH = Decimal("0.016")
USAGE = Told(input=12_000, output=100, cached=0, thinking=0)


def thirty(request: Request) -> Reply | None:
    """A tool in each of thirty requests; each takes a tenth of a second, which no model of Google's is as quick as."""
    if request.method != "stream":
        return None
    turn = len(request.turn_results)
    if turn >= 29:
        return Reply(text="done")
    return Reply(calls=[Call("glob", {"pattern": f"*.x{turn}"})], usage=USAGE, delay=0.1)


def two(request: Request) -> Reply | None:
    """A tool, then an answer."""
    if request.method != "stream":
        return None
    if not request.turn_results:
        return Reply(calls=[Call("glob", {"pattern": "*"})], usage=USAGE)
    return Reply(text="done", usage=USAGE)


def without_gateway(world: Any, google: FakeGoogle, **fields: Any) -> geminids.Options:
    env = {"GOOGLE_GEMINI_BASE_URL": google.url, "GEMINI_API_KEY": KEY, **fields.pop("env", {})}
    return world.options(**{"gateway": "off", "model": PRO, "env": env, **fields})  # type: ignore[no-any-return]


def asked_of(google: FakeGoogle) -> int:
    return len([one for one in google.asked if one.request.method == "stream"])


async def told_by(options: geminids.Options, lane: str) -> list[Any]:
    """The events of a run on this lane."""
    on_permission: Any = None if lane == "headless" else lambda ask: "allow"
    async with geminids.open_run("hello", options, on_permission=on_permission) as run:
        return [event async for event in run]


def assert_stopped(events: list[Any], google: FakeGoogle, whose: str = "this run") -> None:
    """At the limit or one request over it, with what was spent, and nothing of the run is left."""
    assert 10 <= asked_of(google) <= 11
    finished, told = events[-1], of(events, TokensUsed)
    assert (finished.outcome, finished.failure) == ("over_budget", None), finished.reason
    assert f"the budget of {whose} has no room for another request" in finished.reason
    assert "without the gateway" in of(events, Notice, code="gateway")[0].message
    assert len(told) in (10, 11)
    assert (finished.usage.input, finished.usage.requests) == (12_000 * len(told), None)
    assert (finished.cost.list_price, finished.cost.basis) == (EACH * len(told), "estimate")
    assert marked(os.environ[MARKER]) == []
    assert google.wait_until(lambda: google.open == 0, 5), "a connection is still open"


@pytest.mark.parametrize("lane", ["headless", "warm"])
@pytest.mark.parametrize(
    ("version", "limit"),
    [
        ("0.61.0", {"max_requests": 10}),
        pytest.param("0.61.0", {"max_tokens": 115_000}, marks=deep),
        pytest.param("0.61.0", {"max_budget": 0.155}, marks=deep),
        pytest.param("0.61.0", {"day_requests": 10}, marks=deep),
        pytest.param("0.61.0", {"day_tokens": 115_000}, marks=deep),
        pytest.param("0.61.0", {"day_budget": 0.155}, marks=deep),
        pytest.param("0.41.2", {"max_requests": 10}, marks=deep),
    ],
)
def test_room_for_ten_of_thirty(make_world: Any, version: str, limit: dict[str, Any], lane: str) -> None:
    """It stops within one request of the limit, says so and what was spent, and nothing is left."""
    world = make_world(version)
    with FakeGoogle(thirty, with_key=KEY) as google:
        events = anyio.run(told_by, without_gateway(world, google, **limit), lane)
        assert_stopped(events, google, "this run" if "max" in next(iter(limit)) else "the day")
        assert events[-1].cost.usd == events[-1].cost.list_price


@pytest.mark.parametrize("lane", ["headless", pytest.param("warm", marks=deep)])
@pytest.mark.parametrize("version", ["0.61.0", pytest.param("0.41.2", marks=deep)])
@pytest.mark.parametrize(("sign_in", "mode"), [(FakeVertex, "vertex"), (FakeCodeAssist, "account")])
def test_another_sign_in(make_world: Any, version: str, lane: str, sign_in: Any, mode: str) -> None:
    """Its requests pass no gateway, and have a budget all the same; what is paid for them nobody here knows."""
    world = make_world(version)
    with sign_in(thirty, with_key=KEY if mode == "vertex" else None) as google:
        env = {"GOOGLE_GEMINI_BASE_URL": "", "GEMINI_API_KEY": "", **google.env}
        options = world.options(env=env, model=PRO, max_requests=10)
        events = anyio.run(told_by, options, lane)
        assert_stopped(events, google)
    cost = events[-1].cost
    assert (cost.usd, cost.auth_mode) == (None, mode)


@pytest.mark.parametrize("lane", ["headless", pytest.param("warm", marks=deep)])
def test_a_subagent_that_asks_thirty_times(make_world: Any, lane: str) -> None:
    """Its requests count as they are answered: nine of them after the one that has called it."""
    world = make_world("0.61.0")

    def script(request: Request) -> Reply | None:
        if "complete_task" in request.tools or request.method != "stream":
            return thirty(request)
        return Reply(
            calls=[Call("invoke_agent", {"agent_name": "generalist", "prompt": "Look."})], usage=USAGE
        )

    with FakeGoogle(script, with_key=KEY) as google:
        options = without_gateway(world, google, approval="yolo", max_requests=10)
        events = anyio.run(told_by, options, lane)
        assert_stopped(events, google)
    assert [one.role for one in of(events, TokensUsed)][:10] == ["main"] + 9 * ["subagent"]


def test_the_chat_whose_turns_share_a_budget(make_world: Any) -> None:
    """Its next turn asks nothing, and its neighbour in the same process goes on."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> list[geminids.Result]:
        pool = geminids.Pool(without_gateway(world, google, max_requests=10), size=1)
        async with pool, pool.chat() as chat, pool.chat() as neighbour:
            first = await chat.ask("hello")
            second = await chat.ask("and now?")
            # One may have been on its way when the first turn was stopped; the second has asked nothing.
            assert 10 <= asked_of(google) <= 11
            assert not [one for one in google.asked if "and now?" in str(one.request.user_texts)]
            google.asked.clear()
            third = await neighbour.ask("short")
            assert asked_of(google) == 2
            return [first, second, third]

    def script(request: Request) -> Reply | None:
        return (two if "short" in str(request.user_texts) else thirty)(request)

    with FakeGoogle(script, with_key=KEY) as google:
        *stopped, other = anyio.run(main, google)
    assert other.ok, other.failure
    for result in stopped:
        assert (result.outcome, result.failure) == ("over_budget", None), result.reason
        assert "10 of 10 requests" in (result.reason or "")


@pytest.mark.parametrize("lane", ["headless", "warm"])
def test_a_budget_that_is_just_enough(make_world: Any, lane: str) -> None:
    """A run that needs two requests and may send two is a success; with what is left of it nothing is asked."""
    world = make_world("0.61.0")
    budget = geminids.Budget(requests=2)
    on_permission: Any = None if lane == "headless" else lambda ask: "allow"

    async def main(options: geminids.Options) -> tuple[geminids.Result, list[Any]]:
        async with geminids.open_run("hello", options, budget=budget, on_permission=on_permission) as first:
            async for _ in first:
                pass
        async with geminids.open_run("hello", options, budget=budget, on_permission=on_permission) as second:
            return first.result, [event async for event in second]

    with FakeGoogle(two, with_key=KEY) as google:
        first, events = anyio.run(main, without_gateway(world, google))
        assert first.ok, first.failure
        assert (budget.spent.requests, asked_of(google)) == (2, 2)
    finished = events[-1]
    assert (finished.outcome, finished.failure) == ("over_budget", None)
    assert "2 of 2 requests spent" in finished.reason
    if lane == "headless":
        assert of(events, Started) == [], "not even a process was started"


@deep
def test_used_up_by_others_between_two_attempts(make_world: Any) -> None:
    """What the first attempt has spent counts once, though the second was not let go."""
    budget, events = geminids.Budget(requests=5), list[Any]()

    def script(request: Request) -> Reply | None:
        return Reply(status=500) if request.turn_results else two(request)

    async def main(options: geminids.Options) -> None:
        async with geminids.open_run("hello", options, budget=budget) as run:
            async for event in run:
                events.append(event)
                if isinstance(event, Notice) and event.code == "next_attempt":
                    for _ in range(4):
                        budget.book(PRO, Counts(input=1, output=1))

    with FakeGoogle(script, with_key=KEY) as google:
        anyio.run(main, without_gateway(make_world("0.61.0"), google, retries=1))
    end = events[-1]
    assert (end.outcome, end.attempts, end.usage.input) == ("over_budget", 1, 12_000)
    assert (end.cost.usd, end.cost.basis) == (EACH, "estimate")


def test_a_tool_that_runs_is_ended_with_the_run_and_the_session_goes_on(make_world: Any) -> None:
    """The shell that the last answer has called, and what it started; with room again, the session is resumed."""
    world = make_world("0.61.0")
    command = "(trap '' TERM; sleep 300) & echo $$ > tool.pid; sleep 300"

    def script(request: Request) -> Reply | None:
        if request.method != "stream" or "again" in str(request.user_texts):
            return Reply(text="done", usage=USAGE) if request.method == "stream" else None
        return Reply(calls=[Call("run_shell_command", {"command": command})], usage=USAGE)

    with FakeGoogle(script, with_key=KEY) as google:
        options = without_gateway(world, google, approval="yolo", max_requests=1, grace=0.5)
        events = anyio.run(told_by, options, "headless")
        assert (events[-1].outcome, asked_of(google)) == ("over_budget", 1)
        assert marked(os.environ[MARKER]) == []
        (ended,) = of(events, ToolFinished)
        assert ended.status == "cancelled"
        more = without_gateway(world, google, resume=events[-1].session_id)
        again = geminids.ask_sync("again", more)
    assert again.ok and again.answer == "done", again.failure
