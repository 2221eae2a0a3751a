"""What a run costs, computed by hand."""

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


def paid(one: Cost) -> tuple[Decimal | None, str]:
    return one.usd, one.basis


def test_cached_tokens_are_input_at_a_lower_price() -> None:
    """2,000 x 1.25 + 8,000 x 0.125 + 100 x 10."""
    assert paid(cost(request(input=10_000, cached=8_000, output=100))) == (Decimal("0.0045"), "exact")


def test_thinking_is_billed_as_output() -> None:
    """1,000 x 1.25 + (100 + 400) x 10."""
    assert paid(cost(request(input=1_000, output=100, thinking=400))) == (Decimal("0.00625"), "exact")


def test_the_tier_is_that_of_each_request() -> None:
    """Two of 150,000 are two below the tier (0.1875 + 0.005 each), one of 300,000 is above it (0.75 + 0.015)."""
    small = request(input=150_000, output=500)
    assert cost(small, small).usd == Decimal("0.385")
    assert cost(request(input=300_000, output=1000)).usd == Decimal("0.765")


def test_every_role_is_paid_for() -> None:
    """The router, a subagent, a search: the sum of all, and each model's share."""
    found = cost(
        request(LITE, "router", input=1_000, output=10),
        request(PRO, input=1_000, output=100),
        request(PRO, "subagent", input=1_000, output=100),
        request(FLASH, "search", input=1_000, output=100),
    )
    shares = {model.model: model.usd for model in found.models}
    assert shares == {LITE: Decimal("0.000104"), PRO: Decimal("0.0045"), FLASH: Decimal("0.00055")}
    assert found.usd == Decimal("0.005154")


def test_the_served_model_decides_the_price() -> None:
    """A version of a model costs what the model does; a model that nobody knows has no price, whatever was asked."""
    served = request("gemini-2.5-flash-001", input=1_000, output=100)
    assert cost(served).usd == Decimal("0.00055")
    unknown = cost(request(PRO, input=1_000), request("made-up-9", input=1_000))
    assert (unknown.usd, unknown.basis, unknown.unpriced) == (None, "unknown", ("made-up-9",))
    assert {model.model: model.usd for model in unknown.models} == {
        PRO: Decimal("0.00125"),
        "made-up-9": None,
    }


def test_a_table_of_the_caller_goes_before_the_list(tmp_path: Path) -> None:
    """Also for a served version of the model that it names."""
    file = tmp_path / "prices.toml"
    file.write_text('[[models]]\nmodel = "gemini-2.5-flash"\ninput = 1.0\noutput = 2.0\n')
    found = cost(request("gemini-2.5-flash-001", input=1_000_000), prices=str(file))
    assert (found.usd, found.list_price, found.basis) == (Decimal(1), Decimal("0.3"), "exact")


def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Before anything is started, with the option named."""
    file = tmp_path / "prices.toml"
    file.write_text("not a table")
    with pytest.raises(Refused, match=r"prices: .*prices\.toml"):
        check_prices(Options(prices=str(file)))
    check_prices(Options())


def test_an_interrupted_answer_makes_it_an_estimate() -> None:
    """Its tokens are unknown: what is known is the least that was paid."""
    found = cost(request(input=1_000), request(**INTERRUPTED))
    assert paid(found) == (Decimal("0.00125"), "estimate")
    assert paid(cost(request(**INTERRUPTED))) == (None, "unknown")


def test_a_request_that_the_api_refused_costs_nothing() -> None:
    """It has zero tokens, and the cost stays exact."""
    assert paid(cost(request(), request(input=1_000))) == (Decimal("0.00125"), "exact")


def test_no_request_costs_exactly_nothing() -> None:
    """The gateway knows that there was none."""
    assert paid(cost()) == (Decimal(0), "exact")
    assert paid(cost(metered=False)) == (None, "unknown")


@pytest.mark.parametrize("mode", ["vertex", "account", "adc", "other"])
def test_other_sign_ins_have_a_bill_of_their_own(mode: str, tmp_path: Path) -> None:
    """The list price is known, what is paid is not; a table of the caller's own says it."""
    found = cost(request(input=1_000), mode=mode)
    assert (found.usd, found.list_price, found.auth_mode) == (None, Decimal("0.00125"), mode)
    file = tmp_path / "prices.toml"
    file.write_text('[[models]]\nmodel = "gemini-2.5-pro"\ninput = 1.0\noutput = 2.0\n')
    assert cost(request(input=1_000), mode=mode, prices=str(file)).usd == Decimal("0.001")


@pytest.mark.parametrize("fields", [{"offline": True}, {"replay": "/repo/talk.jsonl"}])
def test_no_real_model_costs_nothing(fields: dict[str, Any]) -> None:
    """Whatever tokens it reports; nor has a request a price."""
    found = cost(request("made-up", input=1_000), **fields)
    assert (found.usd, found.basis, found.auth_mode, found.unpriced) == (Decimal(0), "exact", "none", ())
    prices = Prices(Options(**fields), "key", metered=True)
    assert prices.priced(request(input=1_000)).price == Decimal(0)


@pytest.mark.parametrize(
    ("one", "price"),
    [
        (request(input=1_000, output=100), Decimal("0.00225")),
        (request("made-up", input=1_000), None),
        (request(**INTERRUPTED), None),
        (request(), Decimal(0)),
    ],
    ids=["known", "unknown model", "interrupted", "refused"],
)
def test_each_request_has_its_price(one: TokensUsed, price: Decimal | None) -> None:
    """In `TokensUsed.price`; by list for sign-ins whose bill is not known."""
    assert Prices(Options(), "key", metered=True).priced(one).price == price
    assert Prices(Options(), "vertex", metered=True).priced(one).price == price


def test_without_the_gateway_it_is_an_estimate() -> None:
    """By the CLI's totals, with what is over input and output as thinking; else by the session's requests."""
    totals = ModelUsage(model=PRO, input=1_000, cached=0, output=100, total=1_500)
    usage = Usage(input=1_000, output=100, total=1_500, models=(totals,))
    assert paid(cost(request(input=9), metered=False, usage=usage)) == (Decimal("0.00625"), "estimate")
    assert paid(cost(request(input=1_000), metered=False)) == (Decimal("0.00125"), "estimate")


def test_totals_above_a_tier_are_those_of_many_requests() -> None:
    """Most requests of a long run are below the tier that their sum reaches."""
    totals = ModelUsage(model=PRO, input=1_000_000, cached=0, output=0, thinking=0, total=1_000_000)
    usage = Usage(input=1_000_000, output=0, models=(totals,))
    assert cost(metered=False, usage=usage).usd == Decimal("1.25")


def test_pricing_never_raises(tmp_path: Path) -> None:
    """A table that vanished after the start makes the cost unknown: the list price may not be what is paid."""
    prices = Prices(Options(prices=str(tmp_path / "gone.toml")), "key", metered=True)
    assert paid(prices.total([request(input=1_000)], None)) == (None, "unknown")


_counts = st.integers(0, 400_000)
_requests = st.builds(
    lambda model, given, cached, output, thinking: request(
        model, input=given, cached=min(cached, given), output=output, thinking=thinking
    ),
    st.sampled_from([PRO, FLASH, LITE]),
    _counts,
    _counts,
    _counts,
    _counts,
)


@given(st.lists(_requests, max_size=8), st.randoms())
def test_the_sum_is_the_sum_of_the_prices(requests: list[TokensUsed], dice: random.Random) -> None:
    """In any order; each request's own price is one summand."""
    prices = Prices(Options(), "key", metered=True)
    mixed = list(requests)
    dice.shuffle(mixed)
    summands = [prices.priced(one).price or Decimal(0) for one in requests]
    assert prices.total(requests, None).usd == prices.total(mixed, None).usd == sum(summands, Decimal(0))


def test_a_thousand_requests_are_priced_in_a_moment() -> None:
    """A request takes microseconds once the list is loaded."""
    prices = Prices(Options(), "key", metered=True)
    prices.load()
    price_of(PRO, request(input=1))
    began = time.process_time()
    prices.total([request(input=1_000, output=10)] * 1_000, None)
    assert time.process_time() - began < 0.5
