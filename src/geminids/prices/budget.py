"""A budget that several runs, chats and pools are given, and spend together."""

from __future__ import annotations

from decimal import Decimal

from geminids.gateway.purse import Limits, PriceOf, Purse
from geminids.prices.price import Tokens, price_for_gateway, price_of
from geminids.prices.table import PriceTable

__all__ = ["Budget"]


class Budget(Purse):
    """What all whom it is given to may spend at most. Safe from any thread; `spent` says what is gone.

    >>> budget = Budget(dollars=2.5, requests=100)
    >>> budget.spent.requests
    0
    """

    def __init__(
        self,
        *,
        dollars: float | None = None,
        tokens: int | None = None,
        requests: int | None = None,
        prices: PriceTable | None = None,
        name: str = "this batch",
    ) -> None:
        for unit, limit in (("dollars", dollars), ("tokens", tokens), ("requests", requests)):
            if limit is not None and not 0 <= limit < float("inf"):
                raise ValueError(f"{unit}: a budget is a number that is not below 0")
        limits = Limits(dollars=dollars, tokens=tokens, requests=requests)
        if not limits:
            raise ValueError("a budget limits dollars, tokens or requests, or several of them")
        super().__init__(name, limits, _priced(prices) if dollars is not None else None)


def _priced(table: PriceTable | None) -> PriceOf:
    if not table:
        return price_for_gateway

    def price(model: str, tokens: Tokens) -> Decimal | None:
        found = price_of(model, tokens, table=table)
        return found.usd if found is not None else None

    return price
