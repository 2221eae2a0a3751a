"""What a run costs, as its last event tells it."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

__all__ = ["Basis", "Cost", "ModelCost"]

Basis = Literal["exact", "estimate", "unknown"]
"""`exact`: each request's own tokens are known; `estimate`: sums, or not all of it; `unknown`: there is no price."""


class ModelCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests to one model cost, in dollars; None where that is not known."""

    model: str
    usd: Decimal | None = None
    list_price: Decimal | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a run costs, all attempts together, in dollars. What is not known is None, never 0.

    `usd` is what is paid for it: known with an API key, and where the caller's own table has the price of every model.
    An account or Vertex has a bill of its own: there `list_price` says what the tokens would cost by Google's list.
    `unpriced` are models that nobody knows the price of: a sum without them would be no sum.
    """

    usd: Decimal | None = None
    basis: Basis
    list_price: Decimal | None = None
    auth_mode: str | None = None
    models: tuple[ModelCost, ...] = ()
    unpriced: tuple[str, ...] = ()
