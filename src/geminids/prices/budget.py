"""A budget that several runs, chats and pools are given, and spend together."""

from __future__ import annotations

from geminids.gateway.purse import Limits, Purse
from geminids.prices.price import pricing
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
        super().__init__(name, limits, pricing(prices) if dollars is not None else None)
