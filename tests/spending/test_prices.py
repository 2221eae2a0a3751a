"""What the tokens of a request cost."""

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


# By hand, from the prices of a million tokens that stand behind each.
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
        ),  # no price of its own: as input
        ("gemini-2.5-flash", {}, "0"),
    ],
)
def test_prices_by_hand(model: str, counts: dict[str, int], usd: str) -> None:
    """Cached is part of input, thinking is output, and a tier holds for the whole request."""
    assert _usd(model, **counts) == Decimal(usd)


@given(
    st.sampled_from(_SERVED),
    st.integers(0, 900_000),
    st.floats(0, 1),
    st.integers(0, 60_000),
    st.integers(0, 60_000),
    st.integers(0, 60_000),
)
def test_the_library_says_the_same(
    model: str, given_: int, part: float, output: int, thinking: int, tool: int
) -> None:
    """What we keep of its prices gives what it would have given itself."""
    cached = int(given_ * part)
    theirs = calc_price(
        Usage(input_tokens=given_ + tool, cache_read_tokens=cached, output_tokens=output + thinking),
        model,
        provider_id="google",
        genai_request_timestamp=datetime(2026, 11, 16, 12, tzinfo=UTC),
    )
    counts = {"input": given_, "cached": cached, "output": output, "thinking": thinking, "tool": tool}
    assert _usd(model, **counts) == theirs.total_price


def test_a_price_says_what_it_is_made_of() -> None:
    """Each part by itself, and their sum."""
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
def test_issues_of_a_model_cost_what_it_costs(name: str, costs_as: str) -> None:
    """Folders before a name, and dates, numbers and `customtools` behind it, change no price."""
    tokens = {"input": 12_345, "cached": 678, "output": 910}
    assert _usd(name, **tokens) == _usd(costs_as, **tokens) is not None


@pytest.mark.parametrize(
    "name",
    ["gemini-9-ultra", "gemini-2.5-flash-turbo", "gemini", "gemini-2.5", "gpt-5", "auto", ""],
)
def test_what_nobody_knows_has_no_price(name: str) -> None:
    """A guess is no price: not of a relative, nor of another house."""
    assert _usd(name, input=1) is None


def test_other_models_of_a_family_keep_their_own_price() -> None:
    """`lite`, `image` and `tts` are no issues of a model."""
    assert _usd("gemini-2.5-flash-lite", input=1_000_000) == Decimal("0.10")
    assert _usd("gemini-2.5-flash-preview-tts", output=1_000_000) == Decimal(10)


def test_prices_are_those_of_the_day() -> None:
    """A price that changes at New Year is the old one the day before."""
    before, after = (
        _usd_on(on, "gemini-3.8-flash", input=10**6) for on in (date(2026, 12, 31), date(2027, 1, 1))
    )
    assert (before, after) == (Decimal("0.75"), Decimal("1.50"))
    at = datetime(2027, 1, 1, 0, 30, tzinfo=UTC)
    assert _usd_on(at, "gemini-3.8-flash", input=10**6) == after


def test_the_callers_table_goes_first() -> None:
    """The first line that fits; where none does, the list."""
    table = [
        ModelRate(model="gemini-9-*", input=1, output=4, cached=0.1),
        ModelRate(model="*-pro", input=100, output=100),
    ]
    tokens = Counts(input=1_000_000, cached=500_000, output=1_000_000)
    own = price_of("models/gemini-9-pro", tokens, table=table)
    assert own is not None and (own.usd, own.source) == (Decimal("4.55"), "table")
    listed = price_of("gemini-2.5-flash", tokens, table=table)
    assert listed is not None and listed.source == "list"


def test_tiers_of_the_callers_table() -> None:
    """The highest one that the input is above, in whatever order they stand."""
    rate = ModelRate(
        model="m",
        input=1,
        output=1,
        tiers=(RateTier(above=500, input=3, output=3), RateTier(above=100, input=2, output=2)),
    )
    found = [price_of("m", Counts(input=n), table=[rate]) for n in (100, 101, 501)]
    assert [one.usd * 1_000_000 for one in found if one is not None] == [100, 202, 1503]


def test_odd_counts_make_no_odd_price() -> None:
    """More from the cache than was sent, or nothing told at all: never below nothing."""
    assert _usd("gemini-2.5-flash", input=10, cached=999) == Decimal("0.0000003")
    assert _usd("gemini-2.5-flash") == 0


def test_a_request_is_priced_in_a_moment() -> None:
    """Under 100 µs, once the prices are loaded."""
    counts = Counts(input=100_000, cached=5_000, output=500, thinking=50, tool=1)
    price_of("gemini-2.5-pro", counts)
    took = []
    for _ in range(1000):
        begun = time.perf_counter()
        price_of("gemini-2.5-pro", counts)
        took.append(time.perf_counter() - begun)
    assert sorted(took)[500] < 0.0001
