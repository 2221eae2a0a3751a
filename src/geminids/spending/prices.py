"""Compute the price of one request from the number of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal

import msgspec

from geminids.spending.table import PriceTable, rates_in
from geminids.spending.tokens import Tokens

__all__ = ["Price", "price_of", "pricing", "warm_up"]

_MILLION = Decimal(1_000_000)


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The price of one request in US dollars, not rounded, for each kind of token.

    `cached` is the price of the input from the cache, and `input` the price of the other input.
    `tool` is the price of the input that the API adds for its own tools, such as Google Search.
    `thinking` tokens cost as much as output. `source` is `table` if the price comes from the
    caller's price table, or `list` if it comes from the list prices.
    """

    input: Decimal
    cached: Decimal
    tool: Decimal
    output: Decimal
    thinking: Decimal
    source: Literal["list", "table"]

    @property
    def usd(self) -> Decimal:
        return self.input + self.cached + self.tool + self.output + self.thinking


def price_of(
    model: str | None,
    tokens: Tokens,
    at: date | None = None,
    table: PriceTable | None = None,
    *,
    tier_for: int | None = None,
) -> Price | None:
    """Return the price of a request to `model` with these token counts. Return None if the price is
    unknown.

    The price comes from `table`, the caller's price table, if the model is in it. Otherwise it
    comes from the list prices of the day `at` (None: today).

    The price of a token can depend on the number of input tokens of the request. If `tokens` is the
    sum of several requests, set `tier_for` to the number of input tokens of one request.

    >>> from geminids.spending.tokens import Counts
    >>> price_of("gemini-2.5-pro", Counts(input=1000, cached=400, output=100, thinking=50)).usd
    Decimal('0.00230')
    """
    if not model:
        return None
    input_tokens, tool = tokens.input or 0, tokens.tool or 0
    # If the count is wrong, and there are more cached than input tokens, the price must not become
    # negative.
    cached = min(tokens.cached or 0, input_tokens)
    source: Literal["list", "table"] = "table"
    tier_input = input_tokens + tool if tier_for is None else tier_for
    rates = rates_in(table, model, tier_input) if table else None
    if rates is None:
        # Imported late (15 ms): a run with a budget loads this module before the CLI is spawned.
        from geminids.spending.list_prices import listed_rates

        source = "list"
        rates = listed_rates(model, tier_input, _day(at))
    if rates is None:
        return None
    return Price(
        input=(input_tokens - cached) * rates.input / _MILLION,
        cached=cached * rates.cached / _MILLION,
        tool=tool * rates.input / _MILLION,
        output=(tokens.output or 0) * rates.output / _MILLION,
        thinking=(tokens.thinking or 0) * rates.output / _MILLION,
        source=source,
    )


def pricing(table: PriceTable | None) -> Callable[[str, Tokens], Decimal | None]:
    """Return a function that computes the price of a request, in dollars, from its model and its
    token counts. The function uses the prices in `table`; for a model that is not in `table`, it
    uses today's list prices. It returns None if the price is unknown.
    """

    def price(model: str, tokens: Tokens) -> Decimal | None:
        priced = price_of(model, tokens, table=table)
        return priced.usd if priced is not None else None

    return price


def warm_up() -> None:
    """Load the list prices into memory. This is slow, so call it in a thread after the CLI has
    started.
    """
    from geminids.spending.list_prices import load  # imported late (15 ms), see `price_of`

    load()


def _day(at: date | None) -> date:
    if at is None:
        return datetime.now(UTC).date()
    # A datetime is a date too. Convert it to a plain date: otherwise, each different time would add
    # a new entry to the cache of the list prices.
    return at.date() if isinstance(at, datetime) else at
