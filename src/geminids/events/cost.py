"""The tokens and the cost of a run, as `Finished` reports them."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

__all__ = ["Basis", "Cost", "ModelCost", "ModelUsage", "Usage"]

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


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one served model. `unknown` counts its requests whose tokens are not known."""

    model: str
    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thinking: int | None = None
    tool: int | None = None
    total: int | None = None
    unknown: int = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a run: the sum of its `TokensUsed`. Input includes cached, output excludes thinking.

    `requests` counts all requests, failed ones too. `unknown` counts those whose tokens are not known, because their
    answer was interrupted; they are not in the sums. Without the gateway the sums are the CLI's own: it does not
    separate thinking from tool tokens (both None) and does not count requests (None).
    """

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thinking: int | None = None
    tool: int | None = None
    total: int | None = None
    requests: int | None = None
    unknown: int = 0
    models: tuple[ModelUsage, ...] = ()
