"""The tokens and the cost of a run, as `Finished` reports them."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

__all__ = ["Basis", "Cost", "ModelCost", "ModelUsage", "Usage"]

Basis = Literal["exact", "estimate", "unknown"]
"""How exact a cost is.

`exact`: the tokens of each request are known. `estimate`: only sums, or only a part, are known.
`unknown`: there is no price.
"""


class ModelCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of the requests to one model, in dollars; None if it is not known."""

    model: str
    usd: Decimal | None = None
    list_price: Decimal | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a run in dollars, all attempts together. Unknown values are None, never 0.

    `usd` is the amount to pay. It is known with an API key, or if the caller's price table has every
    model. An account or Vertex AI is billed in its own way: there, `list_price` is what the tokens
    would cost by Google's price list. `unpriced` are the models without a known price; if there are
    any, no sum is given.
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

    `requests` counts all requests, including failed ones. `unknown` counts those whose tokens are not
    known because their answer was interrupted; the sums exclude them. Without the gateway the sums
    are the CLI's own: it does not separate thinking from tool tokens (both None) and does not count
    requests (None).
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
