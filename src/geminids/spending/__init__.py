"""Prices and budgets: list prices, the caller's own price table, budgets, and token estimates."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminids.spending.budget import Budget
    from geminids.spending.prices import Price, price_of
    from geminids.spending.table import ModelRate, PriceTable, RateTier, read_prices
    from geminids.spending.tokens import Tokens

__all__ = ["Budget", "ModelRate", "Price", "PriceTable", "RateTier", "Tokens", "price_of", "read_prices"]

_HOMES = {
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
    # Import late: the gateway imports `spending.tokens` before the CLI is spawned, and needs none
    # of these.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
