"""What the tokens of one request cost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal

import msgspec

from geminids.gateway.told import Tokens
from geminids.prices.table import PriceTable, rates_in

__all__ = ["Price", "Tokens", "price_of", "pricing", "warm_up"]

_MILLION = Decimal(1_000_000)


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What one request costs, in exact dollars, and what that is made of.

    `input` is what was not in the cache. Thinking is billed as output, the prompts of the API's own tools as input.
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
    """What one request costs: by the caller's `table`, else by list price on that day; None where nobody knows.

    The tier is the request's own: sums of several requests have none, and price too high or too low. For those,
    `tier_for` says which input the tier is to be that of.

    >>> from geminids.gateway.told import Counts
    >>> price_of("gemini-2.5-pro", Counts(input=1000, cached=400, output=100, thinking=50)).usd
    Decimal('0.00230')
    """
    if not model:
        return None
    given, tool = tokens.input or 0, tokens.tool or 0
    # More from the cache than was sent: a count that cannot be, and must not make a price below nothing.
    cached = min(tokens.cached or 0, given)
    source: Literal["list", "table"] = "table"
    sent = given + tool if tier_for is None else tier_for
    rates = rates_in(table, model, sent) if table else None
    if rates is None:
        from geminids.prices.listed import listed_rates

        source = "list"
        rates = listed_rates(model, sent, _day(at))
    if rates is None:
        return None
    return Price(
        input=(given - cached) * rates.input / _MILLION,
        cached=cached * rates.cached / _MILLION,
        tool=tool * rates.input / _MILLION,
        output=(tokens.output or 0) * rates.output / _MILLION,
        thinking=(tokens.thinking or 0) * rates.output / _MILLION,
        source=source,
    )


def pricing(table: PriceTable | None) -> Callable[[str, Tokens], Decimal | None]:
    """A function that prices a request of today by this table, else by the list."""

    def price(model: str, tokens: Tokens) -> Decimal | None:
        found = price_of(model, tokens, table=table)
        return found.usd if found is not None else None

    return price


def warm_up() -> None:
    """Have the list prices at hand: to be called in a thread, once the CLI is spawned."""
    from geminids.prices.listed import load

    load()


def _day(at: date | None) -> date:
    if at is None:
        return datetime.now(UTC).date()
    # A datetime is a date too, and one that would never be found in a cache twice.
    return at.date() if isinstance(at, datetime) else at
