"""The API may serve another model than the CLI requested: geminids counts and prices the served
model.

Dollars per million tokens (input, output): gemini-2.5-flash 0.30 and 2.50, gemini-2.5-pro 1.25 and
10.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from collect_events import select_events
from geminids import TokensUsed
from geminids.gateway import Call, Reply, ReplyUsage, Request
from sign_ins import SIGN_INS, options_for_server, paid_requests

pytestmark = pytest.mark.real
deep = pytest.mark.deep

FLASH, PRO, UNKNOWN = "gemini-2.5-flash", "gemini-2.5-pro", "gemini-99-ultra"
FIRST = ReplyUsage(input=1_000, output=100, cached=0, thinking=0)
SECOND = ReplyUsage(input=2_000, output=200, cached=0, thinking=0)
# (served models, expected models, expected dollars). The two requests cost, in millionths of a
# dollar: flash 300 + 250 and 600 + 500; pro 1,250 + 1,000 and 2,500 + 2,000.
CASES = {
    "as requested": ((None, None), (FLASH, FLASH), "0.00165"),
    "a dated release": (("gemini-2.5-flash-001",) * 2, ("gemini-2.5-flash-001",) * 2, "0.00165"),
    "another model": ((PRO, PRO), (PRO, PRO), "0.00675"),
    "one of two": ((None, PRO), (FLASH, PRO), "0.00505"),
    "unknown": ((UNKNOWN, UNKNOWN), (UNKNOWN, UNKNOWN), None),
    "one unknown": ((PRO, UNKNOWN), (PRO, UNKNOWN), None),
}
QUICK = {("another model", "headless"), ("one unknown", "warm")}


def script_serving(first: str | None, second: str | None) -> Any:
    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        if not request.turn_results:
            return Reply(calls=[Call("glob", {"pattern": "*"})], usage=FIRST, model_version=first)
        return Reply(text="done", usage=SECOND, model_version=second)

    return script


def run(options: geminids.Options, transport: str = "headless") -> list[Any]:
    if transport == "headless":
        return list(geminids.stream_sync("hello", options))

    async def ask_in_chat() -> list[Any]:
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            return [event async for event in chat.send("hello")]

    return anyio.run(ask_in_chat)


@pytest.mark.parametrize(
    ("case", "transport"),
    [
        pytest.param(case, transport, marks=() if (case, transport) in QUICK else deep)
        for case in CASES
        for transport in ("headless", "warm")
    ],
)
def test_the_served_model_decides(make_world: Any, case: str, transport: str) -> None:
    """Each `TokensUsed` event names the requested and the served model and has the price of the
    served one. If that price is unknown, so is the cost, and `cost.unpriced` lists the model."""
    world = make_world("0.61.0")
    (served, models, usd) = CASES[case]
    with SIGN_INS["key"].serve(script_serving(*served), world.root) as google:
        events = run(options_for_server(world, google, model=FLASH), transport)
        assert [request.model for request in paid_requests(google)] == [FLASH, FLASH]
    finished = events[-1]
    assert finished.outcome == "success", finished.failure
    used = select_events(events, TokensUsed)
    assert [one.model for one in used] == [*models]
    assert [one.requested_model for one in used] == [FLASH, FLASH]
    assert [one.price is None for one in used] == [model == UNKNOWN for model in models]
    assert {model.model for model in finished.usage.models} == set(models)
    cost = finished.cost
    if usd is None:
        assert (cost.usd, cost.list_price, cost.basis) == (None, None, "unknown")
        assert cost.unpriced == (UNKNOWN,)
    else:
        assert (cost.usd, cost.list_price, cost.basis) == (Decimal(usd), Decimal(usd), "exact")
        assert cost.unpriced == ()
        assert sum(one.price or 0 for one in used) == Decimal(usd)


@deep
def test_the_callers_price_of_an_unknown_model(make_world: Any) -> None:
    """The caller's price table sets the price of a model that geminids does not know: 3,000 input
    tokens at $1 and 300 output tokens at $2 per million cost $0.0036."""
    world = make_world("0.61.0")
    table: Path = world.root / "prices.toml"
    table.write_text(f'[[models]]\nmodel = "{UNKNOWN}"\ninput = 1\noutput = 2\n')
    with SIGN_INS["vertex_key"].serve(script_serving(UNKNOWN, UNKNOWN), world.root) as google:
        events = run(options_for_server(world, google, model=FLASH, prices=str(table)))
    cost = events[-1].cost
    assert (cost.usd, cost.basis, cost.unpriced) == (Decimal("0.0036"), "exact", ())


def test_a_budget_in_dollars_goes_by_the_served_model(make_world: Any) -> None:
    """A budget in dollars uses the price of the served model. Six requests of 100,000 tokens would
    cost $0.18 with the requested model; with the served one they cost $0.75, over the budget."""
    world = make_world("0.61.0")

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        step = len(request.turn_results)
        usage = ReplyUsage(input=100_000, output=10, cached=0, thinking=0)
        if step == 5:
            return Reply(text="done", usage=usage, model_version=PRO)
        return Reply(calls=[Call("glob", {"pattern": f"*.{step}"})], usage=usage, model_version=PRO)

    with SIGN_INS["key"].serve(script, world.root) as google:
        events = run(options_for_server(world, google, model=FLASH, max_budget=0.4))
        asked = paid_requests(google)
    assert events[-1].outcome == "over_budget", events[-1]
    # Three are spent for sure; a fourth may have been sent if its estimate fitted.
    assert len(asked) in (3, 4)
    assert events[-1].usage.requests == len(asked)
    assert events[-1].cost.usd == len(asked) * Decimal("0.1251")
