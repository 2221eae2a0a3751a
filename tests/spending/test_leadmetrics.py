"""The price table of the Leadmetrics document beside today's list: where they differ, and why. Run with `-s`."""

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
CACHE = "the document has a quarter of input for the cache; the list has a tenth for the models from 2.5 on"
EIGHT = (
    "the list has what the document has under gemini-flash-1.5-8b, and takes this name for gemini-1.5-flash"
)
WHY = {
    ("gemini-2.5-pro", "cache"): CACHE,
    ("gemini-2.5-flash", "cache"): CACHE,
    ("gemini-2.5-flash-lite", "cache"): CACHE,
    ("gemini-2.5-flash", "input"): "the document has what the list has for gemini-2.5-flash-preview",
    ("gemini-2.5-flash", "output"): "the document has what the list has for gemini-2.5-flash-preview",
    (
        "gemini-1.5-pro",
        "cache",
    ): "the list has 0.3125 under gemini-pro-1.5, and none under this name: it counts as input",
    ("gemini-1.5-flash", "cache"): "the document has rounded 0.01875",
    ("gemini-1.5-flash-8b", "input"): EIGHT,
    ("gemini-1.5-flash-8b", "output"): EIGHT,
    ("gemini-1.5-flash-8b", "cache"): EIGHT,
}
MILLION = 1_000_000
PARTS = {
    "input": Counts(input=MILLION),
    "output": Counts(output=MILLION),
    "cache": Counts(input=MILLION, cached=MILLION),
}


def test_where_prices_differ_today() -> None:
    """Each price of the document has one of today beside it; a difference is told, and is no failure."""
    rows = []
    for model, prices in DOCUMENT.items():
        for (part, counts), written in zip(PARTS.items(), prices, strict=True):
            today = price_of(model, counts, tier_for=0)
            assert today is not None, f"{model}: there is no price any more"
            if today.usd != Decimal(written):
                why = WHY.get((model, part), "not known: the list has changed since this was written")
                rows.append(f"{model:22} {part:7} {written:>7} {today.usd.normalize():>8f}  {why}")
    print(f"\n{'model':22} {'':7} {'then':>7} {'today':>8}  why", *rows, sep="\n")
    print("above 200,000 tokens of input the list has a second price for Pro; the document has none")
    print("a model that it does not know costs 0.15 and 0.60 in the document, and has no price here")
    print("an account or Vertex costs 0.00 in the document, and is not known here (with its list price)")


def test_what_the_document_prices_by_guess_has_no_price() -> None:
    """Unknown models, and the thinking that its sums leave out, would make its cost too low."""
    assert price_of("gemini-99-ultra", Counts(input=MILLION)) is None
    thought = price_of("gemini-2.5-pro", Counts(output=100, thinking=900))
    assert thought is not None and thought.usd == Decimal("0.01")
