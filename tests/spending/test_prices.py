"""Tests of `price_of`: what the tokens of a request cost."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

import pytest
from genai_prices import Usage, calc_price
from hypothesis import given
from hypothesis import strategies as st

from geminids.spending import ModelRate, RateTier, price_of
from geminids.spending.tokens import Counts

_DAY = date(2026, 11, 16)
_SERVED = (
    "gemini-3.8-flash",
    "gemini-3.5-flash-lite",
    "gemini-3.1-pro-preview",
    "gemini-3-pro-preview",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-2.0-flash-lite",
    "gemma-4-31b-it",
)


def _usd_on(day: date, model: str, **counts: int) -> Decimal | None:
    price = price_of(model, Counts(**counts), day)
    return None if price is None else price.usd


_usd = partial(_usd_on, _DAY)


# Calculated by hand from the prices per million tokens in the comments.
@pytest.mark.parametrize(
    ("model", "counts", "usd"),
    [
        ("gemini-2.5-flash", {"input": 1_000_000}, "0.30"),  # 0.30
        ("gemini-2.5-flash", {"output": 1_000_000}, "2.50"),  # 2.50
        ("gemini-2.5-flash", {"thinking": 1_000_000}, "2.50"),  # as output
        ("gemini-2.5-flash", {"tool": 1_000_000}, "0.30"),  # as input
        ("gemini-2.5-flash", {"input": 10_000, "cached": 8_000}, "0.00084"),  # 2,000 × 0.30 + 8,000 × 0.03
        ("gemini-2.5-pro", {"input": 200_000, "output": 1_000}, "0.26"),  # 1.25 and 10: not above 200k
        ("gemini-2.5-pro", {"input": 200_001, "output": 1_000}, "0.5150025"),  # 2.50 and 15: all of it
        ("gemini-2.5-pro", {"input": 300_000, "cached": 300_000}, "0.075"),  # 0.25
        ("gemini-3.1-pro-preview", {"input": 1_000, "output": 100, "thinking": 400}, "0.008"),  # 2 and 12
        ("gemma-4-31b-it", {"input": 1_000, "output": 1_000}, "0"),  # free of charge
        (
            "gemini-2.0-flash-lite",
            {"input": 1_000, "cached": 1_000},
            "0.000075",
        ),  # the list has no cache price: as input
        ("gemini-2.5-flash", {}, "0"),
    ],
)
def test_prices_by_hand(model: str, counts: dict[str, int], usd: str) -> None:
    """Cached tokens are part of input, thinking costs as output, and a tier
    applies to all tokens."""
    assert _usd(model, **counts) == Decimal(usd)


@given(
    st.sampled_from(_SERVED),
    st.integers(0, 900_000),
    st.floats(0, 1),
    st.integers(0, 60_000),
    st.integers(0, 60_000),
    st.integers(0, 60_000),
)
def test_price_equals_the_library(
    model: str, input_tokens: int, cached_share: float, output: int, thinking: int, tool: int
) -> None:
    """The price of any request equals the price that the library calculates."""
    cached = int(input_tokens * cached_share)
    library_price = calc_price(
        Usage(input_tokens=input_tokens + tool, cache_read_tokens=cached, output_tokens=output + thinking),
        model,
        provider_id="google",
        genai_request_timestamp=datetime(2026, 11, 16, 12, tzinfo=UTC),
    )
    counts = {"input": input_tokens, "cached": cached, "output": output, "thinking": thinking, "tool": tool}
    assert _usd(model, **counts) == library_price.total_price


def test_parts_of_a_price() -> None:
    """A price has the cost of each kind of tokens, and `usd` is their sum."""
    price = price_of(
        "gemini-2.5-pro", Counts(input=1000, cached=400, output=100, thinking=50, tool=200), _DAY
    )
    assert price is not None
    parts = (price.input, price.cached, price.tool, price.output, price.thinking)
    assert parts == tuple(map(Decimal, ("0.00075", "0.00005", "0.00025", "0.001", "0.0005")))
    assert (price.usd, price.source) == (sum(parts), "list")


@pytest.mark.parametrize(
    ("name", "costs_as"),
    [
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("publishers/google/models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("gemini-3.1-pro-preview-customtools", "gemini-3.1-pro-preview"),
        ("gemini-2.5-flash-001", "gemini-2.5-flash"),
        ("gemini-2.5-flash-preview-06-17", "gemini-2.5-flash-preview"),
        ("gemini-2.5-flash-lite-001", "gemini-2.5-flash-lite"),
        ("gemini-3.8-flash-10-2026", "gemini-3.8-flash"),
        ("Gemini-2.5-Pro", "gemini-2.5-pro"),
    ],
)
def test_versions_of_a_model_cost_the_same(name: str, costs_as: str) -> None:
    """A path before a model name, or a version or `customtools` after it,
    does not change the price."""
    tokens = {"input": 12_345, "cached": 678, "output": 910}
    assert _usd(name, **tokens) == _usd(costs_as, **tokens) is not None


@pytest.mark.parametrize(
    "name",
    ["gemini-9-ultra", "gemini-2.5-flash-turbo", "gemini", "gemini-2.5", "gpt-5", "auto", ""],
)
def test_unknown_model_has_no_price(name: str) -> None:
    """A model that is not in the list has no price, even if a similar one has."""
    assert _usd(name, input=1) is None


def test_variants_have_their_own_price() -> None:
    """`lite` and `tts` are other models with their own prices, not versions of a model."""
    assert _usd("gemini-2.5-flash-lite", input=1_000_000) == Decimal("0.10")
    assert _usd("gemini-2.5-flash-preview-tts", output=1_000_000) == Decimal(10)


def test_price_of_a_date() -> None:
    """A request costs the price of its date, before and after a price change."""
    before, after = (
        _usd_on(on, "gemini-3.8-flash", input=10**6) for on in (date(2026, 12, 31), date(2027, 1, 1))
    )
    assert (before, after) == (Decimal("0.75"), Decimal("1.50"))
    at = datetime(2027, 1, 1, 0, 30, tzinfo=UTC)
    assert _usd_on(at, "gemini-3.8-flash", input=10**6) == after


def test_callers_table_is_preferred() -> None:
    """The first matching line of the caller's table is used; without a match, the list price."""
    table = [
        ModelRate(model="gemini-9-*", input=1, output=4, cached=0.1),
        ModelRate(model="*-pro", input=100, output=100),
    ]
    tokens = Counts(input=1_000_000, cached=500_000, output=1_000_000)
    own = price_of("models/gemini-9-pro", tokens, table=table)
    assert own is not None and (own.usd, own.source) == (Decimal("4.55"), "table")
    listed = price_of("gemini-2.5-flash", tokens, table=table)
    assert listed is not None and listed.source == "list"


def test_tiers_in_the_callers_table() -> None:
    """The highest tier that the input exceeds is used, whatever the order of the tiers."""
    rate = ModelRate(
        model="m",
        input=1,
        output=1,
        tiers=(RateTier(above=500, input=3, output=3), RateTier(above=100, input=2, output=2)),
    )
    prices = [price_of("m", Counts(input=n), table=[rate]) for n in (100, 101, 501)]
    assert [price.usd * 1_000_000 for price in prices if price is not None] == [100, 202, 1503]


def test_cost_is_never_negative() -> None:
    """The cost is never negative, even if more tokens are cached than were sent."""
    assert _usd("gemini-2.5-flash", input=10, cached=999) == Decimal("0.0000003")
    assert _usd("gemini-2.5-flash") == 0


def test_pricing_is_fast() -> None:
    """Pricing a request takes less than 100 µs once the prices are loaded."""
    counts = Counts(input=100_000, cached=5_000, output=500, thinking=50, tool=1)
    price_of("gemini-2.5-pro", counts)
    durations = []
    for _ in range(1000):
        started = time.perf_counter()
        price_of("gemini-2.5-pro", counts)
        durations.append(time.perf_counter() - started)
    assert sorted(durations)[500] < 0.0001
