"""Tests of the cost of a run, with expected amounts that were computed by hand."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids import Options, TokensUsed
from geminids.events.cost import Cost
from geminids.events.model import ModelUsage, Usage
from geminids.launch.errors import Refused
from geminids.run.accounting.cost import Prices, check_prices
from geminids.spending import price_of

NOON = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp() * 1000)
PRO, FLASH, LITE = "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"
# Dollars per million tokens: pro 1.25 (cache 0.125), output 10; above 200,000: 2.50 (0.25), 15.
# flash 0.30 (0.03), output 2.50; flash-lite 0.10 (0.01), output 0.40.


def request(model: str | None = PRO, role: Any = "main", **counts: int | None) -> TokensUsed:
    known: dict[str, int | None] = {"input": 0, "cached": 0, "output": 0, "thinking": 0, "tool": 0}
    fields: dict[str, Any] = {**known, **counts}
    return TokensUsed(at=NOON, seq=0, attempt=1, turn=1, model=model, role=role, **fields)


INTERRUPTED: dict[str, Any] = dict.fromkeys(("input", "cached", "output", "thinking", "tool"))


def cost(
    *requests: TokensUsed, mode: Any = "key", metered: bool = True, usage: Usage | None = None, **fields: Any
) -> Cost:
    return Prices(Options(**fields), mode, metered=metered).total(requests, usage)


def paid(cost: Cost) -> tuple[Decimal | None, str]:
    return cost.usd, cost.basis


def test_cached_tokens_are_input_at_a_lower_price() -> None:
    """Cached tokens are part of the input and have a lower price: 2,000 x 1.25 + 8,000 x 0.125 +
    100 x 10."""
    assert paid(cost(request(input=10_000, cached=8_000, output=100))) == (Decimal("0.0045"), "exact")


def test_thinking_is_billed_as_output() -> None:
    """Thinking tokens cost as much as output tokens: 1,000 x 1.25 + (100 + 400) x 10."""
    assert paid(cost(request(input=1_000, output=100, thinking=400))) == (Decimal("0.00625"), "exact")


def test_each_request_decides_its_price_tier() -> None:
    """Each request decides its own price tier: two of 150,000 tokens are below it (0.1875 + 0.005
    each), one of 300,000 is above it (0.75 + 0.015)."""
    small = request(input=150_000, output=500)
    assert cost(small, small).usd == Decimal("0.385")
    assert cost(request(input=300_000, output=1000)).usd == Decimal("0.765")


def test_requests_of_every_role_count() -> None:
    """Requests of every role count: router, main, subagent and search.

    The cost has the sum and each model's share.
    """
    total = cost(
        request(LITE, "router", input=1_000, output=10),
        request(PRO, input=1_000, output=100),
        request(PRO, "subagent", input=1_000, output=100),
        request(FLASH, "search", input=1_000, output=100),
    )
    shares = {model.model: model.usd for model in total.models}
    assert shares == {LITE: Decimal("0.000104"), PRO: Decimal("0.0045"), FLASH: Decimal("0.00055")}
    assert total.usd == Decimal("0.005154")


def test_the_served_model_decides_the_price() -> None:
    """The model that answered decides the price.

    A version of a model costs the same as the model; an unknown model has no price.
    """
    served = request("gemini-2.5-flash-001", input=1_000, output=100)
    assert cost(served).usd == Decimal("0.00055")
    unknown = cost(request(PRO, input=1_000), request("made-up-9", input=1_000))
    assert (unknown.usd, unknown.basis, unknown.unpriced) == (None, "unknown", ("made-up-9",))
    assert {model.model: model.usd for model in unknown.models} == {
        PRO: Decimal("0.00125"),
        "made-up-9": None,
    }


def test_the_callers_price_table_replaces_the_list(tmp_path: Path) -> None:
    """The caller's price table replaces the list price, also for a version of a model that the
    table names."""
    file = tmp_path / "prices.toml"
    file.write_text('[[models]]\nmodel = "gemini-2.5-flash"\ninput = 1.0\noutput = 2.0\n')
    total = cost(request("gemini-2.5-flash-001", input=1_000_000), prices=str(file))
    assert (total.usd, total.list_price, total.basis) == (Decimal(1), Decimal("0.3"), "exact")


def test_an_invalid_price_table_is_refused(tmp_path: Path) -> None:
    """An invalid price table is refused before the start, and the error names the option."""
    file = tmp_path / "prices.toml"
    file.write_text("not a table")
    with pytest.raises(Refused, match=r"`prices`: .*prices\.toml"):
        check_prices(Options(prices=str(file)))
    check_prices(Options())


def test_an_interrupted_answer_makes_the_cost_an_estimate() -> None:
    """If an answer was interrupted, its tokens are unknown, and the cost of the other requests is
    an estimate. Alone, the cost is unknown."""
    total = cost(request(input=1_000), request(**INTERRUPTED))
    assert paid(total) == (Decimal("0.00125"), "estimate")
    assert paid(cost(request(**INTERRUPTED))) == (None, "unknown")


def test_a_refused_request_costs_nothing() -> None:
    """A refused request has zero tokens, and the cost stays exact."""
    assert paid(cost(request(), request(input=1_000))) == (Decimal("0.00125"), "exact")


def test_a_run_without_requests_costs_nothing() -> None:
    """Without requests the cost is exactly zero if the gateway counted them, and otherwise
    unknown."""
    assert paid(cost()) == (Decimal(0), "exact")
    assert paid(cost(metered=False)) == (None, "unknown")


@pytest.mark.parametrize("mode", ["vertex", "account", "adc", "other"])
def test_other_sign_ins_have_only_a_list_price(mode: str, tmp_path: Path) -> None:
    """For sign-ins other than an API key only the list price is known; the caller's price table
    gives the real cost."""
    total = cost(request(input=1_000), mode=mode)
    assert (total.usd, total.list_price, total.auth_mode) == (None, Decimal("0.00125"), mode)
    file = tmp_path / "prices.toml"
    file.write_text('[[models]]\nmodel = "gemini-2.5-pro"\ninput = 1.0\noutput = 2.0\n')
    assert cost(request(input=1_000), mode=mode, prices=str(file)).usd == Decimal("0.001")


@pytest.mark.parametrize("fields", [{"offline": True}, {"replay": "/repo/talk.jsonl"}])
def test_offline_and_replayed_runs_cost_nothing(fields: dict[str, Any]) -> None:
    """An offline or replayed run costs exactly zero, and each of its requests has price zero."""
    total = cost(request("made-up", input=1_000), **fields)
    assert (total.usd, total.basis, total.auth_mode, total.unpriced) == (Decimal(0), "exact", "none", ())
    prices = Prices(Options(**fields), "key", metered=True)
    assert prices.priced(request(input=1_000)).price == Decimal(0)


@pytest.mark.parametrize(
    ("used", "price"),
    [
        (request(input=1_000, output=100), Decimal("0.00225")),
        (request("made-up", input=1_000), None),
        (request(**INTERRUPTED), None),
        (request(), Decimal(0)),
    ],
    ids=["known", "unknown model", "interrupted", "refused"],
)
def test_each_request_has_its_price(used: TokensUsed, price: Decimal | None) -> None:
    """`TokensUsed.price` is the price of one request; for sign-ins with an unknown bill it is the
    list price."""
    assert Prices(Options(), "key", metered=True).priced(used).price == price
    assert Prices(Options(), "vertex", metered=True).priced(used).price == price


def test_without_the_gateway_the_cost_is_an_estimate() -> None:
    """Without the gateway the cost is an estimate from the CLI's totals, where tokens beyond input
    and output count as thinking; without totals, from the session's requests."""
    totals = ModelUsage(model=PRO, input=1_000, cached=0, output=100, total=1_500)
    usage = Usage(input=1_000, output=100, total=1_500, models=(totals,))
    assert paid(cost(request(input=9), metered=False, usage=usage)) == (Decimal("0.00625"), "estimate")
    assert paid(cost(request(input=1_000), metered=False)) == (Decimal("0.00125"), "estimate")


def test_totals_are_priced_below_the_tier() -> None:
    """Totals are priced below the tier, because they are the sum of many requests that are mostly
    below it."""
    totals = ModelUsage(model=PRO, input=1_000_000, cached=0, output=0, thinking=0, total=1_000_000)
    usage = Usage(input=1_000_000, output=0, models=(totals,))
    assert cost(metered=False, usage=usage).usd == Decimal("1.25")


def test_a_missing_price_table_makes_the_cost_unknown(tmp_path: Path) -> None:
    """If the price table disappears after the start, the cost is unknown; no list price is used
    instead."""
    prices = Prices(Options(prices=str(tmp_path / "gone.toml")), "key", metered=True)
    assert paid(prices.total([request(input=1_000)], None)) == (None, "unknown")


_counts = st.integers(0, 400_000)
_requests = st.builds(
    lambda model, prompt, cached, output, thinking: request(
        model, input=prompt, cached=min(cached, prompt), output=output, thinking=thinking
    ),
    st.sampled_from([PRO, FLASH, LITE]),
    _counts,
    _counts,
    _counts,
    _counts,
)


@given(st.lists(_requests, max_size=8), st.randoms())
def test_the_cost_is_the_sum_of_the_prices(requests: list[TokensUsed], dice: random.Random) -> None:
    """The cost is the sum of the prices of the requests, in any order."""
    prices = Prices(Options(), "key", metered=True)
    shuffled = list(requests)
    dice.shuffle(shuffled)
    summands = [prices.priced(used).price or Decimal(0) for used in requests]
    assert prices.total(requests, None).usd == prices.total(shuffled, None).usd == sum(summands, Decimal(0))


def test_pricing_is_fast() -> None:
    """Pricing 1,000 requests takes less than half a second once the price list is loaded."""
    prices = Prices(Options(), "key", metered=True)
    prices.load()
    price_of(PRO, request(input=1))
    start = time.process_time()
    prices.total([request(input=1_000, output=10)] * 1_000, None)
    assert time.process_time() - start < 0.5
