"""What a run costs: the sum of what the API has counted for each request, whoever tells it."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from complete import of
from fake_google import Asked, FakeGoogle
from geminids import Notice, TokensUsed
from geminids.events.cost import Cost
from geminids.gateway import Call, Reply, Request
from geminids.gateway import Usage as Told

pytestmark = pytest.mark.real

KEY = "AIzaSy-not-a-real-key-0123456789"
deep = pytest.mark.deep
PRO = "gemini-2.5-pro"
# Dollars per million tokens, below 200,000 tokens of input and above: input, from the cache, output.
RATES = {
    "gemini-2.5-pro": (("1.25", "0.125", "10"), ("2.50", "0.25", "15")),
    "gemini-2.5-flash": (("0.30", "0.03", "2.50"),) * 2,
    "gemini-2.5-flash-lite": (("0.10", "0.01", "0.40"),) * 2,
}


def tokens(n: int) -> Told:
    return Told(input=1000 + n, output=10 * n, cached=100 + n, thinking=7 * n)


def plain(request: Request) -> Reply | None:
    """A tool with much to read, then an answer: one request above 200,000, one below."""
    if request.method != "stream":
        return None
    if not request.turn_results:
        return Reply(calls=[Call("glob", {"pattern": "*"})], usage=tokens(1))
    return Reply(text="done", usage=Told(input=250_000, output=20, cached=240_000, thinking=30))


def thirty(request: Request) -> Reply | None:
    """A tool in each of thirty requests; each takes a fifth of a second, which is quick for an API."""
    if request.method != "stream":
        return None
    turn = len(request.turn_results)
    if turn >= 29:
        return Reply(text="done")
    usage = Told(input=12_000, output=100, cached=0, thinking=0)
    return Reply(calls=[Call("glob", {"pattern": f"*.x{turn}"})], usage=usage, delay=0.2)


def through(world: Any, google: FakeGoogle, **fields: Any) -> geminids.Options:
    env = {"GOOGLE_GEMINI_BASE_URL": google.url, "GEMINI_API_KEY": KEY, **fields.pop("env", {})}
    return world.options(**{"gateway": "on", "model": PRO, "env": env, **fields})  # type: ignore[no-any-return]


def by_hand(asked: list[Asked]) -> Decimal:
    """What the requests that the server has answered cost, by the rates above."""
    total = Decimal(0)
    for one in asked:
        if one.usage:
            count = Counter(one.usage)
            given, cached = count["promptTokenCount"], count["cachedContentTokenCount"]
            written = count["candidatesTokenCount"] + count["thoughtsTokenCount"]
            rates = [Decimal(rate) for rate in RATES[one.model or ""][given > 200_000]]
            total += ((given - cached) * rates[0] + cached * rates[1] + written * rates[2]) / 1_000_000
    return total


def assert_costs(cost: Cost | None, google: FakeGoogle, basis: str = "exact") -> None:
    assert cost is not None
    assert (cost.usd, cost.basis, cost.auth_mode) == (by_hand(google.asked), basis, "key"), cost
    assert cost.list_price == cost.usd
    assert sum((one.usd or Decimal(0) for one in cost.models), Decimal(0)) == cost.usd


@pytest.mark.parametrize("gateway", ["on", "off"])
@pytest.mark.parametrize("version", ["0.61.0", pytest.param("0.41.2", marks=deep)])
def test_a_run(make_world: Any, version: str, gateway: str) -> None:
    """Cache, thinking and the tier of each request; with the gateway and by the journal alone."""
    world = make_world(version)
    with FakeGoogle(plain, with_key=KEY) as google:
        result = geminids.ask_sync("hello", through(world, google, gateway=gateway))
        assert result.ok, result.failure
        assert_costs(result.cost, google)


@pytest.mark.parametrize(
    ("version", "gateway", "basis"),
    [("0.24.0", "off", "estimate"), pytest.param("0.24.0", "on", "exact", marks=deep)],
)
def test_an_old_release(make_world: Any, version: str, gateway: str, basis: str) -> None:
    """It tells sums without models and without thinking: an estimate, and right where one tier is all there is."""
    world = make_world(version)
    with FakeGoogle([Reply(text="done", usage=tokens(3))], with_key=KEY) as google:
        result = geminids.ask_sync("hello", through(world, google, gateway=gateway))
        assert result.ok, result.failure
        assert_costs(result.cost, google, basis)


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
def test_a_subagent_and_a_resumed_session(make_world: Any, gateway: str) -> None:
    """The subagent's requests are paid for; the next run of the session costs its own requests alone."""
    world = make_world("0.61.0")

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        if "complete_task" in request.tools:
            return Reply(calls=[Call("complete_task", {"response": "x", "result": "x"})], usage=tokens(4))
        if not request.turn_results and "again" not in str(request.user_texts):
            return Reply(
                calls=[Call("invoke_agent", {"agent_name": "generalist", "prompt": "Look."})], usage=tokens(1)
            )
        return Reply(text="done", usage=tokens(2))

    with FakeGoogle(script, with_key=KEY) as google:
        options = through(world, google, approval="yolo", gateway=gateway)
        events: list[Any] = list(geminids.stream_sync("hello", options))
        assert "subagent" in [one.role for one in of(events, TokensUsed)]
        assert_costs(events[-1].cost, google)
        google.asked.clear()
        more = through(world, google, approval="yolo", gateway=gateway, resume=events[-1].session_id)
        assert_costs(geminids.ask_sync("again", more).cost, google)


def test_the_router_and_prices_of_ones_own(make_world: Any, tmp_path: Path) -> None:
    """`auto` asks a small model first: paid for too, by the caller's table, with the list price beside it."""
    world = make_world("0.61.0")
    table = tmp_path / "prices.toml"
    table.write_text('[[models]]\nmodel = "*"\ninput = 1.0\ncached = 1.0\noutput = 1.0\n')
    with FakeGoogle(plain, with_key=KEY) as google:
        options = through(world, google, model="auto", prices=str(table))
        events: list[Any] = list(geminids.stream_sync("hello", options))
        sums = google.counted()
    cost = events[-1].cost
    assert "utility" in [one.role for one in of(events, TokensUsed)]
    all_tokens = sum(
        sums[name] for name in ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    )
    assert (cost.usd, cost.basis) == (Decimal(all_tokens) / 1_000_000, "exact")
    assert cost.list_price is not None and cost.list_price != cost.usd


def test_an_answer_that_was_cut(make_world: Any) -> None:
    """A run that is stopped in the middle of an answer costs what is known, as an estimate."""
    world = make_world("0.61.0")

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        if not request.turn_results:
            return Reply(calls=[Call("glob", {"pattern": "*"})], usage=tokens(1))
        return Reply(text=["a", "b"], stall=True)

    async def main(google: FakeGoogle) -> geminids.Result:
        async with geminids.open_run("hello", through(world, google)) as run:
            async for event in run:
                if isinstance(event, geminids.Text):
                    run.stop()
        return run.result

    with FakeGoogle(script, with_key=KEY) as google:
        result = anyio.run(main, google)
        first = by_hand(google.asked[:1])
    assert result.outcome == "interrupted"
    assert result.cost is not None and result.cost.usd is not None
    assert (result.cost.usd >= first > 0, result.cost.basis) == (True, "estimate")


def test_the_api_refuses(make_world: Any) -> None:
    """An error costs nothing, and the gateway knows that nothing else was asked."""
    world = make_world("0.61.0")
    with FakeGoogle(plain, with_key="another") as google:
        seen = geminids.ask_sync("hello", through(world, google))
        unseen = geminids.ask_sync("hello", through(world, google, gateway="off"))
    assert seen.cost is not None and (seen.cost.usd, seen.cost.basis) == (Decimal(0), "exact")
    assert unseen.cost is not None and (unseen.cost.usd, unseen.cost.basis) == (None, "unknown")


# Budgets without the gateway.


def asked_of(google: FakeGoogle) -> int:
    return len([one for one in google.asked if one.request.method == "stream"])


@pytest.mark.parametrize(
    "limit", [{"max_requests": 10}, pytest.param({"max_tokens": 115_000}, marks=deep), {"max_budget": 0.155}]
)
def test_room_for_ten_of_thirty_without_the_gateway(make_world: Any, limit: dict[str, Any]) -> None:
    """It stops within one request of the limit, says so and what was spent, and nothing is left."""
    world = make_world("0.61.0")
    with FakeGoogle(thirty, with_key=KEY) as google:
        options = through(world, google, gateway="off", **limit)
        events: list[Any] = list(geminids.stream_sync("hello", options))
        assert 10 <= asked_of(google) <= 11
    finished = events[-1]
    assert (finished.outcome, finished.failure) == ("over_budget", None), finished.reason
    assert "the budget of this run has no room for another request" in finished.reason
    assert "without the gateway" in of(events, Notice, code="gateway")[0].message
    assert finished.cost.basis == "estimate" and finished.cost.usd >= 10 * Decimal("0.016")


def test_on_the_warm_lane_without_the_gateway(make_world: Any) -> None:
    """A run that asks somebody, and a chat, whose turns share one budget: the next one asks nothing."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> list[geminids.Result]:
        options = through(world, google, gateway="off", max_requests=10)
        async with geminids.open_run("hello", options, on_permission=lambda ask: "allow") as run:
            async for _ in run:
                pass
        assert 10 <= asked_of(google) <= 11
        google.asked.clear()
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            first = await chat.ask("hello")
            sent = asked_of(google)
            assert 10 <= sent <= 11
            second = await chat.ask("and now?")
            assert asked_of(google) == sent
        return [run.result, first, second]

    with FakeGoogle(thirty, with_key=KEY) as google:
        results = anyio.run(main, google)
    for result in results:
        assert (result.outcome, result.failure) == ("over_budget", None), result.reason
        assert "10 of 10 requests" in (result.reason or "")


def test_a_budget_that_is_just_enough_without_the_gateway(make_world: Any) -> None:
    """A run that needs two requests and may send two is a success; the next one of the same budget asks nothing."""
    world = make_world("0.61.0")
    budget = geminids.Budget(requests=2)
    with FakeGoogle(plain, with_key=KEY) as google:
        options = through(world, google, gateway="off")
        assert geminids.ask_sync("hello", options, budget=budget).ok
        assert budget.spent.requests == 2
        again = geminids.ask_sync("hello", options, budget=budget)
        assert asked_of(google) == 2
    assert again.outcome == "over_budget"
