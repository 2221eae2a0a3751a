"""The price of one request from its tokens."""

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
    """The price of one request in exact dollars, by kind of token.

    `input` excludes cached input. Thinking is billed as output, the prompts of the API's own tools
    as input.
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
    """The price of one request, from the caller's `table`, else from the list prices of that day.
    None if unknown.

    The input of a request decides its tier, so the price of several requests together would be
    wrong. For a sum, set `tier_for` to the input of one request.

    >>> from geminids.spending.tokens import Counts
    >>> price_of("gemini-2.5-pro", Counts(input=1000, cached=400, output=100, thinking=50)).usd
    Decimal('0.00230')
    """
    if not model:
        return None
    input_tokens, tool = tokens.input or 0, tokens.tool or 0
    # More cached than input tokens would be a wrong count; it must not make the price negative.
    cached = min(tokens.cached or 0, input_tokens)
    source: Literal["list", "table"] = "table"
    tier_input = input_tokens + tool if tier_for is None else tier_for
    rates = rates_in(table, model, tier_input) if table else None
    if rates is None:
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
    """A function that returns today's price of a request, from this table, else from the list
    prices."""

    def price(model: str, tokens: Tokens) -> Decimal | None:
        priced = price_of(model, tokens, table=table)
        return priced.usd if priced is not None else None

    return price


def warm_up() -> None:
    """Load the list prices. Call it in a thread, after the CLI is spawned."""
    from geminids.spending.list_prices import load

    load()


def _day(at: date | None) -> date:
    if at is None:
        return datetime.now(UTC).date()
    # A datetime is a date too, but each would add a new key to the cache.
    return at.date() if isinstance(at, datetime) else at
