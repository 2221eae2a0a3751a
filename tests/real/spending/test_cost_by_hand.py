"""Runs of the real CLI whose cost a reader can calculate: each figure is written out to the last
digit.

Dollars per million tokens (input, cached input, output with thinking):
gemini-2.5-pro 1.25, 0.125, 10, and for a request with more than 200,000 input tokens 2.50, 0.25, 15;
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
from collect_events import select_events
from fake_google import FakeGoogle, ReceivedRequest
from geminids import Cost, Started, TokensUsed
from geminids.gateway import Call, Reply, ReplyUsage, Request

pytestmark = pytest.mark.real
deep = pytest.mark.deep

KEY = "AIzaSy-not-a-real-key-0123456789"
PRO = "gemini-2.5-pro"
PLAIN = ReplyUsage(
    input=1_000, output=100, cached=0, thinking=0
)  # of Pro: 1,000 × 1.25 + 100 × 10 = $0.00225
UTILITY = ReplyUsage(input=2_000, output=50, cached=0, thinking=10)
HELPER = ReplyUsage(input=3_000, output=50, cached=1_000, thinking=0)
OWN = '[[models]]\nmodel = "gemini-2.5-*"\ninput = 1\noutput = 2\n'


class Case(NamedTuple):
    """The requests of a conversation and their cost. Every request except the last answers with a
    tool call.

    Two fields are for runs without the gateway, if their cost differs: `totals` is the estimate
    from the CLI's totals. `chat_totals` is the estimate for a chat, whose totals lack the CLI's utility
    requests.
    """

    requests: list[ReplyUsage]
    usd: str | None
    totals: str | None = None
    chat_totals: str | None = None
    model: str = PRO
    call: Call = Call("glob", {"pattern": "*"})


CASES = {
    # 2,000 × 1.25 + 8,000 × 0.125 + 100 × 10 = 2,500 + 1,000 + 1,000
    "cache": Case([ReplyUsage(input=10_000, cached=8_000, output=100, thinking=0)], "0.0045"),
    # 1,000 × 1.25 + (100 + 400) × 10 = 1,250 + 5,000
    "thinking": Case([ReplyUsage(input=1_000, cached=0, output=100, thinking=400)], "0.00625"),
    # 150,000 × 1.25 + 500 × 10 = 192,500 twice; 300,000 × 2.50 + 1,000 × 15 = 765,000 once.
    # Priced by the sum of their input, they would cost 1.53.
    "tier": Case(
        [
            ReplyUsage(input=150_000, cached=0, output=500, thinking=0),
            ReplyUsage(input=300_000, cached=0, output=1_000, thinking=0),
            ReplyUsage(input=150_000, cached=0, output=500, thinking=0),
        ],
        "1.15",
        # The sum has no tier: 600,000 × 1.25 + 2,000 × 10.
        totals="0.77",
    ),
    # 2,250 twice of Pro; the search 2,000 × 0.50 + (50 + 10) × 3 = 1,180, which the journal does not record.
    "two models": Case(
        [PLAIN, PLAIN], "0.00568", chat_totals="0.0045", call=Call("google_web_search", {"query": "x"})
    ),
    # The router 2,000 × 0.30 + (50 + 10) × 2.50 = 750, which the journal does not record; then 2,250 of Pro.
    "router": Case([PLAIN], "0.003", chat_totals="0.00225", model="auto-gemini-2.5"),
    # 2,250 twice; the helper 2,000 × 1.25 + 1,000 × 0.125 + 50 × 10 = 3,125.
    "subagent": Case(
        [PLAIN, PLAIN],
        "0.007625",
        call=Call("invoke_agent", {"agent_name": "generalist", "prompt": "Look."}),
    ),
    # Earlier turns count as input again: 1,000 × 1.25 + 19,000 × 0.125 + 100 × 10 = 1,250 + 2,375 + 1,000.
    "resumed": Case([ReplyUsage(input=20_000, cached=19_000, output=100, thinking=0)], "0.004625"),
    "unknown model": Case([PLAIN], None, model="gemini-99-ultra"),
    # 1,000 × 1 + 100 × 2, with the caller's own price table.
    "own price": Case([PLAIN], "0.0012"),
}


class ScriptedApi:
    """The scripted API: the case that the prompt names decides the answer."""

    def __init__(self) -> None:
        # The first attempt costs 2,250, the second 2,000 × 1.25 + 100 × 10 = 3,500.
        self.retry: Iterator[Reply] = iter(
            [
                Reply(calls=[Call("glob", {"pattern": "*"})], usage=PLAIN),
                Reply(status=500),
                Reply(text="done", usage=ReplyUsage(input=2_000, output=100, cached=0, thinking=0)),
            ]
        )

    def __call__(self, request: Request) -> Reply | None:
        if request.method == "generate":
            wants_json = "responseJsonSchema" in request.config or "responseSchema" in request.config
            route = '{"complexity_reasoning": "x", "complexity_score": 1}'
            return Reply(text=route if wants_json else "found", usage=UTILITY, method="any")
        if request.method != "stream":
            return None
        if "complete_task" in request.tools:
            result = {"result": {"response": "x"}}
            return Reply(calls=[Call("complete_task", result)], usage=HELPER)
        name = re.findall(r"do: ([a-z ]+)\.", "\n".join(request.user_texts))[-1]
        if name == "retry":
            return next(self.retry)
        if name == "aborted" and request.turn_results:
            return Reply(text=["a", "b"], stall=True)
        case = CASES.get(name, Case([PLAIN, PLAIN], None))
        index = len(request.turn_results)
        if index + 1 < len(case.requests):
            return Reply(text=" One look.\n\n", calls=[case.call], usage=case.requests[index])
        return Reply(text="done", usage=case.requests[index])


def options_for(world: Any, google: FakeGoogle, name: str = "", **fields: Any) -> geminids.Options:
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


def assert_recorded(usage: geminids.Usage | None, asked: list[ReceivedRequest]) -> None:
    """Check that the token totals equal the sums of what the server reported for each request."""
    sums = {
        name: sum(one.usage.get(f"{name}TokenCount", 0) for one in asked)
        for name in ("prompt", "cachedContent", "candidates", "thoughts")
    }
    assert usage is not None
    assert [usage.input, usage.cached, usage.output] == [*sums.values()][:3]
    # The CLI's totals have no separate thinking count: total - input - output is thinking or tool
    # tokens.
    assert (usage.total or 0) - (usage.input or 0) - (usage.output or 0) == sums["thoughts"]


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
@pytest.mark.parametrize("name", CASES)
def test_a_run(make_world: Any, name: str, gateway: str) -> None:
    """The cost is right to the last digit. Its basis is `exact` with the gateway and `estimate`
    without, or `unknown` for a model without a price."""
    world, case = make_world("0.61.0"), CASES[name]
    with FakeGoogle(ScriptedApi(), with_key=KEY) as google:
        options = options_for(world, google, name, gateway=gateway)
        if name == "resumed":
            first = geminids.ask_sync("do: cache.", options)
            assert_costs(first.cost, CASES["cache"].usd, "exact" if gateway == "on" else "estimate")
            google.asked.clear()
            options = options_for(world, google, name, gateway=gateway, resume=first.session_id)
        result = geminids.ask_sync(f"do: {name}.", options)
        assert result.ok, result.failure
        basis = "unknown" if case.usd is None else "exact" if gateway == "on" else "estimate"
        assert_costs(result.cost, case.usd if gateway == "on" else case.totals or case.usd, basis)
        assert_recorded(result.usage, google.asked)
    assert result.cost is not None
    if name == "unknown model":
        assert result.cost.unpriced == ("gemini-99-ultra",)
    if name == "own price":
        assert result.cost.list_price == Decimal("0.00225"), "the list price ignores the caller's own prices"


@pytest.mark.parametrize("gateway", ["on", "off"])
def test_chats_in_one_process(make_world: Any, gateway: str) -> None:
    """Each chat turn costs only its own requests, although one process sends those of all chats.
    Without the gateway the cost is an estimate."""
    world = make_world("0.61.0")
    results: dict[str, geminids.Result] = {}

    async def ask_in_chat(pool: geminids.Pool, name: str, *before: str) -> None:
        async with pool.chat(model=CASES[name].model) as chat:
            for prompt in (*before, name):
                results[prompt if prompt == name else "before"] = await chat.ask(f"do: {prompt}.")

    async def main(google: FakeGoogle) -> None:
        options = options_for(world, google, "cache", gateway=gateway)
        async with geminids.Pool(options) as pool, anyio.create_task_group() as tasks:
            for name in CASES:
                if name != "own price":
                    tasks.start_soon(ask_in_chat, pool, name, *(["cache"] if name == "resumed" else []))

    with FakeGoogle(ScriptedApi(), with_key=KEY) as google:
        anyio.run(main, google)
    for name, result in results.items():
        case = CASES["cache" if name == "before" else name]
        assert result.ok, (name, result.failure)
        basis = "unknown" if case.usd is None else "exact" if gateway == "on" else "estimate"
        assert_costs(
            result.cost, case.usd if gateway == "on" else case.chat_totals or case.totals or case.usd, basis
        )
        assert result.usage is not None
        # Only the gateway knows the number of requests.
        assert (result.usage.requests is None) == (gateway == "off")


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
def test_an_aborted_run(make_world: Any, gateway: str) -> None:
    """The cost of an aborted run is that of its first request ($0.00225), as an estimate, because
    the tokens of the interrupted request are unknown."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> geminids.Result:
        async with geminids.open_run("do: aborted.", options_for(world, google, gateway=gateway)) as run:
            async for event in run:
                if isinstance(event, geminids.Text) and "a" in event.text:
                    run.stop()
        return run.result

    with FakeGoogle(ScriptedApi(), with_key=KEY) as google:
        result = anyio.run(main, google)
    assert result.outcome == "interrupted"
    assert_costs(result.cost, "0.00225", "estimate")


@pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
def test_a_retry(make_world: Any, gateway: str) -> None:
    """The cost of a run with a retry is the sum of both attempts ($0.00225 and $0.0035). The second
    attempt resumes the session, and no request counts twice."""
    world = make_world("0.61.0")
    with FakeGoogle(ScriptedApi(), with_key=KEY) as google:
        options = options_for(world, google, gateway=gateway, retries=1)
        events: list[Any] = list(geminids.stream_sync("do: retry.", options))
    assert [one.attempt for one in select_events(events, Started)] == [1, 2]
    # The gateway also reports the failed request, which cost nothing.
    failed = [(1, 0)] if gateway == "on" else []
    used = [(one.attempt, one.input) for one in select_events(events, TokensUsed)]
    assert used == [(1, 1_000), *failed, (2, 2_000)]
    assert events[-1].outcome == "success"
    assert_costs(events[-1].cost, "0.00575", "exact" if gateway == "on" else "estimate")
