"""Compare the price table of the Leadmetrics document with today's list prices. Run with `-s`."""

from __future__ import annotations

from decimal import Decimal

from geminids.spending import price_of
from geminids.spending.tokens import Counts

# Dollars per million tokens: input, output, cache read.
DOCUMENT = {
    "gemini-2.5-pro": ("1.25", "10.00", "0.31"),
    "gemini-2.5-flash": ("0.15", "0.60", "0.0375"),
    "gemini-2.5-flash-lite": ("0.10", "0.40", "0.025"),
    "gemini-2.0-flash": ("0.10", "0.40", "0.025"),
    "gemini-1.5-pro": ("1.25", "5.00", "0.31"),
    "gemini-1.5-flash": ("0.075", "0.30", "0.019"),
    "gemini-1.5-flash-8b": ("0.0375", "0.15", "0.01"),
}
CACHE = "cached input costs a quarter of input in the document, and a tenth in the list from 2.5 on"
WHY = {
    ("gemini-2.5-pro", "cache"): CACHE,
    ("gemini-2.5-flash", "cache"): CACHE,
    ("gemini-2.5-flash-lite", "cache"): CACHE,
    ("gemini-2.5-flash", "input"): "the document has the list price of gemini-2.5-flash-preview",
    ("gemini-2.5-flash", "output"): "the document has the list price of gemini-2.5-flash-preview",
    (
        "gemini-1.5-pro",
        "cache",
    ): "the list has 0.3125 under gemini-pro-1.5; under this name, cached input costs as much as input",
    ("gemini-1.5-flash", "cache"): "the document rounds 0.01875",
}
MILLION = 1_000_000
PARTS = {
    "input": Counts(input=MILLION),
    "output": Counts(output=MILLION),
    "cache": Counts(input=MILLION, cached=MILLION),
}


def test_print_price_differences() -> None:
    """Every model of the document has a list price today.
    Differences are printed and do not fail."""
    rows = []
    for model, prices in DOCUMENT.items():
        for (part, counts), documented in zip(PARTS.items(), prices, strict=True):
            today = price_of(model, counts, tier_for=0)
            assert today is not None, f"{model} has no list price any more"
            if today.usd != Decimal(documented):
                why = WHY.get((model, part), "unknown: the list has changed since this test was written")
                rows.append(f"{model:22} {part:7} {documented:>7} {today.usd.normalize():>8f}  {why}")
    print(f"\n{'model':22} {'':7} {'doc':>7} {'today':>8}  why", *rows, sep="\n")
    print("above 200,000 input tokens the list has a second price for Pro; the document has only one")
    print("an unknown model costs 0.15 and 0.60 in the document; geminids has no price for it")
    print("an account or Vertex costs 0.00 in the document; geminids reports unknown and the list price")


def test_a_small_model_has_its_own_price() -> None:
    """gemini-1.5-flash-8b has the price of the document, not that of gemini-1.5-flash."""
    for name in ("gemini-1.5-flash-8b", "gemini-1.5-flash-8b-001"):
        price = price_of(name, Counts(input=MILLION, output=MILLION), tier_for=0)
        assert price is not None and (price.input, price.output) == (Decimal("0.0375"), Decimal("0.15"))


def test_unknown_models_and_thinking() -> None:
    """An unknown model has no price, and thinking tokens cost as much as output.
    The document guesses the first and leaves out the second."""
    assert price_of("gemini-99-ultra", Counts(input=MILLION)) is None
    price = price_of("gemini-2.5-pro", Counts(output=100, thinking=900))
    assert price is not None and price.usd == Decimal("0.01")
