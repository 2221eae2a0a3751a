"""Prices and budgets of requests to a model.

The package contains the list prices, price tables of the caller, budgets that limit the cost, and
an estimate of the tokens of a request.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminids.spending.budget import Budget
    from geminids.spending.prices import Price, price_of
    from geminids.spending.table import ModelRate, PriceTable, RateTier, read_prices
    from geminids.spending.tokens import Tokens

__all__ = ["Budget", "ModelRate", "Price", "PriceTable", "RateTier", "Tokens", "price_of", "read_prices"]

_MODULES = {
    "Budget": "budget",
    "ModelRate": "table",
    "Price": "prices",
    "PriceTable": "table",
    "RateTier": "table",
    "Tokens": "tokens",
    "price_of": "prices",
    "read_prices": "table",
}


def __getattr__(name: str) -> Any:
    # Import on first use: runs load this package before the CLI is spawned, and do not need these
    # names at that time.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
