"""Tokens to money: the list prices of models, and the caller's own on top of them."""

from __future__ import annotations

from geminids.prices.budget import Budget
from geminids.prices.price import Price, Tokens, price_of, pricing, warm_up
from geminids.prices.table import ModelRate, PriceTable, RateTier, read_prices

__all__ = [
    "Budget",
    "ModelRate",
    "Price",
    "PriceTable",
    "RateTier",
    "Tokens",
    "price_of",
    "pricing",
    "read_prices",
    "warm_up",
]
