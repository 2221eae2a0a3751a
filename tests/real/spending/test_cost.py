"""The cost of a run is the price of the tokens that the API counted for each request."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import anyio
import pytest

import geminids
from fake_google import FakeGoogle, Fault, ReceivedRequest
from geminids.events.cost import Cost
from geminids.gateway import Call, Reply, ReplyUsage, Request

pytestmark = pytest.mark.real

KEY = "AIzaSy-not-a-real-key-0123456789"
deep = pytest.mark.deep
PRO = "gemini-2.5-pro"
# Dollars per million tokens (input, cached input, output): up to 200,000 input tokens, and above.
RATES = {
    "gemini-2.5-pro": (("1.25", "0.125", "10"), ("2.50", "0.25", "15")),
    "gemini-2.5-flash": (("0.30", "0.03", "2.50"),) * 2,
    "gemini-2.5-flash-lite": (("0.10", "0.01", "0.40"),) * 2,
}


def tokens(n: int) -> ReplyUsage:
    return ReplyUsage(input=1000 + n, output=10 * n, cached=100 + n, thinking=7 * n)


def answer_after_tool(request: Request) -> Reply | None:
    """Call a tool, then answer. The first request has fewer than 200,000 input tokens, the second
    more."""
    if request.method != "stream":
        return None
    if not request.turn_results:
        return Reply(calls=[Call("glob", {"pattern": "*"})], usage=tokens(1))
    return Reply(text="done", usage=ReplyUsage(input=250_000, output=20, cached=240_000, thinking=30))


def options_for(world: Any, google: FakeGoogle, **fields: Any) -> geminids.Options:
    env = {"GOOGLE_GEMINI_BASE_URL": google.url, "GEMINI_API_KEY": KEY, **fields.pop("env", {})}
    return world.options(**{"gateway": "on", "model": PRO, "env": env, **fields})  # type: ignore[no-any-return]


def expected_cost(asked: list[ReceivedRequest], *, tiers: bool = True) -> Decimal:
    """Compute the cost of the answered requests from RATES. Without `tiers`, the lower rates apply
    to all."""
    total = Decimal(0)
    for request in asked:
        if request.usage:
            counts = Counter(request.usage)
            input_tokens, cached_tokens = counts["promptTokenCount"], counts["cachedContentTokenCount"]
            output_tokens = counts["candidatesTokenCount"] + counts["thoughtsTokenCount"]
            rates = [Decimal(rate) for rate in RATES[request.model or ""][tiers and input_tokens > 200_000]]
            micro_dollars = (input_tokens - cached_tokens) * rates[0] + cached_tokens * rates[1]
            total += (micro_dollars + output_tokens * rates[2]) / 1_000_000
    return total


def assert_costs(cost: Cost | None, google: FakeGoogle, basis: str = "exact", *, tiers: bool = True) -> None:
    assert cost is not None
    assert (cost.usd, cost.basis, cost.auth_mode) == (
        expected_cost(google.asked, tiers=tiers),
        basis,
        "key",
    ), cost
    assert cost.list_price == cost.usd
    assert sum((one.usd or Decimal(0) for one in cost.models), Decimal(0)) == cost.usd


@pytest.mark.parametrize("gateway", [pytest.param("on", marks=deep), "off"])
@pytest.mark.parametrize("version", ["0.61.0", pytest.param("0.54.4", marks=deep)])
def test_a_run(make_world: Any, version: str, gateway: str) -> None:
    """The cost counts cached input, thinking and the price tier of each request. Without the
    gateway it is an estimate from the CLI's totals, which have no tiers."""
    world = make_world(version)
    with FakeGoogle(answer_after_tool, with_key=KEY) as google:
        result = geminids.ask_sync("hello", options_for(world, google, gateway=gateway))
        assert result.ok, result.failure
        metered = gateway == "on"
        assert_costs(result.cost, google, "exact" if metered else "estimate", tiers=metered)


LOST = ReplyUsage(input=2_000, output=100, cached=0, thinking=50)
DONE = Reply(text="fine", usage=tokens(1))
REPEATED: dict[str, list[Reply | Fault]] = {
    # The CLI repeats the request. Nothing reports the tokens of the interrupted answer.
    "cut": [Fault("reset", Reply(text=["a", "b", "c"], usage=LOST), after=2), DONE],
    "no answer": [Fault("silent"), DONE],
    # The CLI discards an empty answer, which still costs money. The CLI's totals contain it, the
    # journal does not.
    "empty": [Reply(text="", usage=LOST), DONE],
    # An error costs nothing.
    "refused": [Reply(status=500), DONE],
}


@pytest.mark.parametrize("gateway", ["off", pytest.param("on", marks=deep)])
@pytest.mark.parametrize(
    "name", ["cut", "empty", pytest.param("no answer", marks=deep), pytest.param("refused", marks=deep)]
)
def test_the_cost_of_repeated_requests(make_world: Any, name: str, gateway: str) -> None:
    """The cost includes a repeated request if the CLI or the gateway knows its tokens. The basis is
    `exact` only if no request can be missing."""
    world = make_world("0.61.0")
    with FakeGoogle(REPEATED[name], with_key=KEY) as google:
        result = geminids.ask_sync("hello", options_for(world, google, gateway=gateway))
        assert result.ok, result.failure
        assert len(google.asked) == 2
        known = gateway == "on" and name in ("refused", "empty")
        assert_costs(result.cost, google, "exact" if known else "estimate")


@pytest.mark.parametrize("gateway", ["off", pytest.param("on", marks=deep)])
def test_the_cost_of_repeated_requests_in_a_chat(make_world: Any, gateway: str) -> None:
    """On the warm transport without the gateway, the cost includes only the requests in the
    journal. With the gateway it includes all."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> geminids.Result:
        async with geminids.Pool(options_for(world, google, gateway=gateway)) as pool, pool.chat() as chat:
            return await chat.ask("hello")

    with FakeGoogle(REPEATED["empty"], with_key=KEY) as google:
        result = anyio.run(main, google)
        asked = google.asked if gateway == "on" else google.asked[1:]
    assert result.ok, result.failure
    assert result.cost is not None
    basis = "exact" if gateway == "on" else "estimate"
    assert (result.cost.usd, result.cost.basis) == (expected_cost(asked), basis)


@deep
def test_the_cost_of_a_run_stopped_during_an_answer(make_world: Any) -> None:
    """A run that is stopped during an answer reports at least the cost of its earlier requests, as
    an estimate."""
    world = make_world("0.61.0")

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        if not request.turn_results:
            return Reply(calls=[Call("glob", {"pattern": "*"})], usage=tokens(1))
        return Reply(text=["a", "b"], stall=True)

    async def main(google: FakeGoogle) -> geminids.Result:
        async with geminids.open_run("hello", options_for(world, google)) as run:
            async for event in run:
                if isinstance(event, geminids.Text):
                    run.stop()
        return run.result

    with FakeGoogle(script, with_key=KEY) as google:
        result = anyio.run(main, google)
        first = expected_cost(google.asked[:1])
    assert result.outcome == "interrupted"
    assert result.cost is not None and result.cost.usd is not None
    assert (result.cost.usd >= first > 0, result.cost.basis) == (True, "estimate")


def test_the_cost_of_a_refused_request(make_world: Any) -> None:
    """A request that the API refuses costs nothing. With the gateway that cost is exact; without
    it, the cost is unknown."""
    world = make_world("0.61.0")
    with FakeGoogle(answer_after_tool, with_key="another") as google:
        with_gateway = geminids.ask_sync("hello", options_for(world, google))
        without_gateway = geminids.ask_sync("hello", options_for(world, google, gateway="off"))
    assert with_gateway.cost is not None
    assert (with_gateway.cost.usd, with_gateway.cost.basis) == (Decimal(0), "exact")
    assert without_gateway.cost is not None
    assert (without_gateway.cost.usd, without_gateway.cost.basis) == (None, "unknown")
