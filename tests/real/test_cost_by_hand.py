"""Twelve runs of the real CLI whose cost a reader can work out: each figure is written out, to the last digit.

Dollars per million tokens (input, from the cache, output with thinking):
gemini-2.5-pro 1.25, 0.125, 10, and for a request with more than 200,000 tokens of input 2.50, 0.25, 15;
gemini-3.5-flash-lite (the router) 0.30, 0.03, 2.50; gemini-3-flash-preview (searches) 0.50, 0.05, 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

import geminids
from complete import of
from fake_google import Asked, FakeGoogle
from geminids import Cost, Started, TokensUsed
from geminids.gateway import Call, Reply, Request
from geminids.gateway import Usage as Told

pytestmark = pytest.mark.real
deep = pytest.mark.deep

KEY = "AIzaSy-not-a-real-key-0123456789"
PRO = "gemini-2.5-pro"
PLAIN = Told(input=1_000, output=100, cached=0, thinking=0)  # of Pro: 1,000 × 1.25 + 100 × 10 = $0.00225
ERRAND = Told(input=2_000, output=50, cached=0, thinking=10)
HELPER = Told(input=3_000, output=50, cached=1_000, thinking=0)
OWN = '[[models]]\nmodel = "gemini-2.5-*"\ninput = 1\noutput = 2\n'


class Case(NamedTuple):
    """The requests of the conversation, each but the last with a call, and what they cost.

    Without the gateway, if it differs: `totals` is the estimate by the CLI's totals; `seen` is that of a chat, whose
    totals lack the CLI's own requests.
    """

    requests: list[Told]
    usd: str | None
    totals: str | None = None
    seen: str | None = None
    model: str = PRO
    call: Call = Call("glob", {"pattern": "*"})


CASES = {
    # 2,000 × 1.25 + 8,000 × 0.125 + 100 × 10 = 2,500 + 1,000 + 1,000
    "cache": Case([Told(input=10_000, cached=8_000, output=100, thinking=0)], "0.0045"),
    # 1,000 × 1.25 + (100 + 400) × 10 = 1,250 + 5,000
    "thinking": Case([Told(input=1_000, cached=0, output=100, thinking=400)], "0.00625"),
    # 150,000 × 1.25 + 500 × 10 = 192,500 twice; 300,000 × 2.50 + 1,000 × 15 = 765,000 once. By their sum: 1.53.
    "tier": Case(
        [
            Told(input=150_000, cached=0, output=500, thinking=0),
            Told(input=300_000, cached=0, output=1_000, thinking=0),
            Told(input=150_000, cached=0, output=500, thinking=0),
        ],
        "1.15",
        # The sum has no tier: 600,000 × 1.25 + 2,000 × 10.
        totals="0.77",
    ),
    # 2,250 twice of Pro; the search 2,000 × 0.50 + (50 + 10) × 3 = 1,180, which no journal has.
    "two models": Case(
        [PLAIN, PLAIN], "0.00568", seen="0.0045", call=Call("google_web_search", {"query": "x"})
    ),
    # The router 2,000 × 0.30 + (50 + 10) × 2.50 = 750, in no journal; then 2,250 of Pro.
    "router": Case([PLAIN], "0.003", seen="0.00225", model="auto-gemini-2.5"),
    # 2,250 twice; the helper 2,000 × 1.25 + 1,000 × 0.125 + 50 × 10 = 3,125.
    "subagent": Case(
        [PLAIN, PLAIN],
        "0.007625",
        call=Call("invoke_agent", {"agent_name": "generalist", "prompt": "Look."}),
    ),
    # What was said before is input again: 1,000 × 1.25 + 19,000 × 0.125 + 100 × 10 = 1,250 + 2,375 + 1,000.
    "resumed": Case([Told(input=20_000, cached=19_000, output=100, thinking=0)], "0.004625"),
    "unknown model": Case([PLAIN], None, model="gemini-99-ultra"),
    # 1,000 × 1 + 100 × 2, by the caller's own table.
    "own price": Case([PLAIN], "0.0012"),
}


class Play:
    """The scripted API: what it answers goes by the case that the prompt names."""

    def __init__(self) -> None:
        # 2,250 for the first attempt; the second goes on with 2,000 × 1.25 + 100 × 10 = 3,500.
        self.retry: Iterator[Reply] = iter(
            [
                Reply(calls=[Call("glob", {"pattern": "*"})], usage=PLAIN),
                Reply(status=500),
                Reply(text="done", usage=Told(input=2_000, output=100, cached=0, thinking=0)),
            ]
        )

    def __call__(self, request: Request) -> Reply | None:
        if request.method == "generate":
            wants_json = "responseJsonSchema" in request.config or "responseSchema" in request.config
            route = '{"complexity_reasoning": "x", "complexity_score": 1}'
            return Reply(text=route if wants_json else "found", usage=ERRAND, method="any")
        if request.method != "stream":
            return None
        if "complete_task" in request.tools:
            done = {"result": {"response": "x"}}
            return Reply(calls=[Call("complete_task", done)], usage=HELPER)
        name = re.findall(r"do: ([a-z ]+)\.", "\n".join(request.user_texts))[-1]
        if name == "retry":
            return next(self.retry)
        if name == "aborted" and request.turn_results:
            return Reply(text=["a", "b"], stall=True)
        case = CASES.get(name, Case([PLAIN, PLAIN], None))
        at = len(request.turn_results)
        if at + 1 < len(case.requests):
            return Reply(text=" One look.\n\n", calls=[case.call], usage=case.requests[at])
        return Reply(text="done", usage=case.requests[at])


def through(world: Any, google: FakeGoogle, name: str = "", **fields: Any) -> geminids.Options:
    env = {"GOOGLE_GEMINI_BASE_URL": google.url, "GEMINI_API_KEY": KEY}
    if name == "own price":
        table: Path = world.root / "prices.toml"
        table.write_text(OWN)
        fields["prices"] = str(table)
    model = CASES[name].model if name in CASES else PRO
    return world.options(**{"model": model, "env": env, "approval": "yolo", **fields})  # type: ignore[no-any-return]


def assert_costs(cost: Cost | None, usd: str | None, basis: str) -> None:
    assert cost is not None
    expected = None if usd is None else Decimal(usd)
    assert (cost.usd, cost.basis, cost.auth_mode) == (expected, basis, "key"), cost
    if expected is not None:
        assert sum((one.usd or Decimal(0) for one in cost.models), Decimal(0)) == expected


def assert_recorded(usage: geminids.Usage | None, asked: list[Asked]) -> None:
    """The tokens are those that the server has told, request by request."""
    sums = {
        name: sum(one.usage.get(f"{name}TokenCount", 0) for one in asked)
        for name in ("prompt", "cachedContent", "candidates", "thoughts")
    }
    assert usage is not None
    assert [usage.input, usage.cached, usage.output] == [*sums.values()][:3]
    # The CLI's sums have no thinking of their own: what is left of the total is either that or tools.
    assert (usage.total or 0) - (usage.input or 0) - (usage.output or 0) == sums["thoughts"]


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
@pytest.mark.parametrize("name", CASES)
def test_a_run(make_world: Any, name: str, gateway: str) -> None:
    """To the last digit, whoever tells the tokens; `exact` only where nothing can be missing."""
    world, case = make_world("0.61.0"), CASES[name]
    with FakeGoogle(Play(), with_key=KEY) as google:
        options = through(world, google, name, gateway=gateway)
        if name == "resumed":
            first = geminids.ask_sync("do: cache.", options)
            assert_costs(first.cost, CASES["cache"].usd, "exact" if gateway == "on" else "estimate")
            google.asked.clear()
            options = through(world, google, name, gateway=gateway, resume=first.session_id)
        result = geminids.ask_sync(f"do: {name}.", options)
        assert result.ok, result.failure
        basis = "unknown" if case.usd is None else "exact" if gateway == "on" else "estimate"
        assert_costs(result.cost, case.usd if gateway == "on" else case.totals or case.usd, basis)
        assert_recorded(result.usage, google.asked)
    assert result.cost is not None
    if name == "unknown model":
        assert result.cost.unpriced == ("gemini-99-ultra",)
    if name == "own price":
        assert result.cost.list_price == Decimal("0.00225"), "the list is told beside it"


@pytest.mark.parametrize("gateway", ["on", "off"])
def test_chats_in_one_process(make_world: Any, gateway: str) -> None:
    """Each turn costs its own requests, though all go through one process; the journal alone proves nothing."""
    world = make_world("0.61.0")
    results: dict[str, geminids.Result] = {}

    async def chat(pool: geminids.Pool, name: str, *before: str) -> None:
        async with pool.chat(model=CASES[name].model) as talk:
            for prompt in (*before, name):
                results[prompt if prompt == name else "before"] = await talk.ask(f"do: {prompt}.")

    async def main(google: FakeGoogle) -> None:
        options = through(world, google, "cache", gateway=gateway)
        async with geminids.Pool(options) as pool, anyio.create_task_group() as tasks:
            for name in CASES:
                if name != "own price":
                    tasks.start_soon(chat, pool, name, *(["cache"] if name == "resumed" else []))

    with FakeGoogle(Play(), with_key=KEY) as google:
        anyio.run(main, google)
    for name, result in results.items():
        case = CASES["cache" if name == "before" else name]
        assert result.ok, (name, result.failure)
        basis = "unknown" if case.usd is None else "exact" if gateway == "on" else "estimate"
        assert_costs(
            result.cost, case.usd if gateway == "on" else case.seen or case.totals or case.usd, basis
        )
        assert result.usage is not None
        # Only the gateway knows how many there were.
        assert (result.usage.requests is None) == (gateway == "off")


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
def test_an_aborted_run(make_world: Any, gateway: str) -> None:
    """The first request, 2,250, and of the one that was cut nobody knows."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> geminids.Result:
        async with geminids.open_run("do: aborted.", through(world, google, gateway=gateway)) as run:
            async for event in run:
                if isinstance(event, geminids.Text) and "a" in event.text:
                    run.stop()
        return run.result

    with FakeGoogle(Play(), with_key=KEY) as google:
        result = anyio.run(main, google)
    assert result.outcome == "interrupted"
    assert_costs(result.cost, "0.00225", "estimate")


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
def test_a_retry(make_world: Any, gateway: str) -> None:
    """Both attempts, 2,250 and 3,500; the second goes on with the first one's session, and nothing counts twice."""
    world = make_world("0.61.0")
    with FakeGoogle(Play(), with_key=KEY) as google:
        options = through(world, google, gateway=gateway, retries=1)
        events: list[Any] = list(geminids.stream_sync("do: retry.", options))
    assert [one.attempt for one in of(events, Started)] == [1, 2]
    # The gateway sees the request that failed, too: it cost nothing.
    failed = [(1, 0)] if gateway == "on" else []
    used = [(one.attempt, one.input) for one in of(events, TokensUsed)]
    assert used == [(1, 1_000), *failed, (2, 2_000)]
    assert events[-1].outcome == "success"
    assert_costs(events[-1].cost, "0.00575", "exact" if gateway == "on" else "estimate")
