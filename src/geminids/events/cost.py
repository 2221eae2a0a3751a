"""The tokens and the cost of a run. The event `Finished` contains them."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

__all__ = ["Basis", "Cost", "ModelCost", "ModelUsage", "Usage", "with_reported_totals"]

Basis = Literal["exact", "estimate", "unknown"]
"""How exact a cost is.

`exact`: the tokens of each request are known. `estimate`: the tokens of some requests are not
known, or the gateway did not see the requests. `unknown`: no tokens or no price are known.
"""


class ModelCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of all requests of a run to one model, in dollars. `usd` is the amount to pay, and
    `list_price` the cost at Google's list prices. None means unknown (see `Cost`).
    """

    model: str
    usd: Decimal | None = None
    list_price: Decimal | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a run in dollars, including all its attempts. An unknown value is None, never 0.

    `usd` is the amount to pay. `list_price` is the cost of the tokens at Google's list prices. Runs
    with an account login or Vertex AI are billed in other ways. For such a run, `usd` is known only
    if the price table of the option `prices` contains every model of the run; `list_price` may be
    known even if `usd` is not.

    `models` contains the cost of each model. `unpriced` lists the models for which neither amount
    is known. If this list is not empty, `usd` and `list_price` are None.
    """

    usd: Decimal | None = None
    basis: Basis
    list_price: Decimal | None = None
    auth_mode: str | None = None
    models: tuple[ModelCost, ...] = ()
    unpriced: tuple[str, ...] = ()


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one model in a run: the sum over all requests that this model answered.
    `unknown` is the number of these requests whose tokens are not known.
    """

    model: str
    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thinking: int | None = None
    tool: int | None = None
    total: int | None = None
    unknown: int = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a run: the sum of the numbers in its `TokensUsed` events. `input` includes
    `cached`. `output` does not include `thinking`.

    `requests` is the number of all requests, including failed ones. `unknown` is the number of
    requests whose tokens are not known, because the answer was interrupted. The sums do not include
    these requests.

    If the run does not use the gateway, the sums come from the CLI. The CLI does not separate
    thinking tokens from tool tokens, and does not count requests. Then `thinking`, `tool` and
    `requests` are None.
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


def with_reported_totals(usage: Usage) -> Usage:
    """If `input` and `output` are known, but `thinking`, `tool`, `total` and `requests` are not,
    return the usage with `thinking` and `tool` set to 0. Otherwise return `usage` unchanged.

    The CLI always reports a total. So usage without a total comes from another program, for which
    `input` and `output` together are all tokens.
    """
    other_counts = (usage.requests, usage.total, usage.thinking, usage.tool)
    if any(count is not None for count in other_counts) or None in (usage.input, usage.output):
        return usage
    return msgspec.structs.replace(usage, thinking=0, tool=0)
