"""What a run costs: the sum of what the API has counted for each request, whoever tells it."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import anyio
import pytest

import geminids
from fake_google import Asked, FakeGoogle, Fault
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


def through(world: Any, google: FakeGoogle, **fields: Any) -> geminids.Options:
    env = {"GOOGLE_GEMINI_BASE_URL": google.url, "GEMINI_API_KEY": KEY, **fields.pop("env", {})}
    return world.options(**{"gateway": "on", "model": PRO, "env": env, **fields})  # type: ignore[no-any-return]


def by_hand(asked: list[Asked], *, tiers: bool = True) -> Decimal:
    """What the requests that the server has answered cost, by the rates above; without `tiers`, by the lower ones."""
    total = Decimal(0)
    for one in asked:
        if one.usage:
            count = Counter(one.usage)
            given, cached = count["promptTokenCount"], count["cachedContentTokenCount"]
            written = count["candidatesTokenCount"] + count["thoughtsTokenCount"]
            rates = [Decimal(rate) for rate in RATES[one.model or ""][tiers and given > 200_000]]
            total += ((given - cached) * rates[0] + cached * rates[1] + written * rates[2]) / 1_000_000
    return total


def assert_costs(cost: Cost | None, google: FakeGoogle, basis: str = "exact", *, tiers: bool = True) -> None:
    assert cost is not None
    assert (cost.usd, cost.basis, cost.auth_mode) == (by_hand(google.asked, tiers=tiers), basis, "key"), cost
    assert cost.list_price == cost.usd
    assert sum((one.usd or Decimal(0) for one in cost.models), Decimal(0)) == cost.usd


@pytest.mark.parametrize("gateway", [pytest.param("on", marks=deep), "off"])
@pytest.mark.parametrize("version", ["0.61.0", pytest.param("0.54.4", marks=deep)])
def test_a_run(make_world: Any, version: str, gateway: str) -> None:
    """Cache, thinking and the tier of each request. Without the gateway, the CLI's totals have no tiers."""
    world = make_world(version)
    with FakeGoogle(plain, with_key=KEY) as google:
        result = geminids.ask_sync("hello", through(world, google, gateway=gateway))
        assert result.ok, result.failure
        metered = gateway == "on"
        assert_costs(result.cost, google, "exact" if metered else "estimate", tiers=metered)


LOST = Told(input=2_000, output=100, cached=0, thinking=50)
DONE = Reply(text="fine", usage=tokens(1))
AGAIN: dict[str, list[Reply | Fault]] = {
    # The CLI asks anew by itself. What the API had counted for an answer that was cut, nobody tells.
    "cut": [Fault("reset", Reply(text=["a", "b", "c"], usage=LOST), after=2), DONE],
    "no answer": [Fault("silent"), DONE],
    # An answer without a word is thrown away, and paid for: the CLI's own sums have it, and no journal.
    "empty": [Reply(text="", usage=LOST), DONE],
    # An error costs nothing.
    "refused": [Reply(status=500), DONE],
}


@pytest.mark.parametrize("gateway", ["off", pytest.param("on", marks=deep)])
@pytest.mark.parametrize(
    "name", ["cut", "empty", pytest.param("no answer", marks=deep), pytest.param("refused", marks=deep)]
)
def test_what_the_cli_asks_for_again(make_world: Any, name: str, gateway: str) -> None:
    """Never `exact` where a request may be missing; all of it where the CLI or the gateway has counted it."""
    world = make_world("0.61.0")
    with FakeGoogle(AGAIN[name], with_key=KEY) as google:
        result = geminids.ask_sync("hello", through(world, google, gateway=gateway))
        assert result.ok, result.failure
        assert len(google.asked) == 2
        known = gateway == "on" and name in ("refused", "empty")
        assert_costs(result.cost, google, "exact" if known else "estimate")


@pytest.mark.parametrize("gateway", ["off", pytest.param("on", marks=deep)])
def test_what_a_chat_asks_for_again(make_world: Any, gateway: str) -> None:
    """On the warm lane the journal is all there is without the gateway: what it does not have is not told."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> geminids.Result:
        async with geminids.Pool(through(world, google, gateway=gateway)) as pool, pool.chat() as chat:
            return await chat.ask("hello")

    with FakeGoogle(AGAIN["empty"], with_key=KEY) as google:
        result = anyio.run(main, google)
        asked = google.asked if gateway == "on" else google.asked[1:]
    assert result.ok, result.failure
    assert result.cost is not None
    basis = "exact" if gateway == "on" else "estimate"
    assert (result.cost.usd, result.cost.basis) == (by_hand(asked), basis)


@deep
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
