"""List prices of Google's models, as the library genai-prices knows them."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from geminids.gateway.fork import importing
from geminids.prices.remembered import Prices, Steps, recall, remember
from geminids.prices.table import Rates, bare, names_of

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

__all__ = ["asked", "listed_rates", "load"]

# A model that every run may meet: where its price is remembered, so are those of all of Google's.
_USUAL = "gemini-2.5-pro"


def load() -> None:
    """Have the prices at hand: what was remembered, and where that is nothing, the library (a sixth of a second)."""
    if recall(_USUAL) is None:
        _models()


def listed_rates(model: str, tokens_in: int, on: date) -> Rates | None:
    """What a request with so much input costs on that day; None where the library does not know the model.

    The name is looked up as it is, and then without its version (`names_of`).
    """
    steps = _steps(bare(model), on)
    if steps is None:
        return None
    return Rates(*(_at(step, tokens_in) for step in steps))


def _at(steps: Steps, tokens_in: int) -> Decimal:
    price = steps[0][1]
    for above, dollars in steps[1:]:
        if tokens_in > above:
            price = dollars
    return price


# The library needs 75 µs for a request, most of it for finding out what it found out before.
@lru_cache(maxsize=1024)
def _steps(name: str, on: date) -> tuple[Steps, Steps, Steps] | None:
    prices = _prices(name)
    if prices is None:
        return None
    _, given, cached, output = next(line for line in reversed(prices) if line[0] <= on)
    return given, cached, output


def _prices(name: str) -> Prices | None:
    if _is_custom():
        return asked(name)
    kept = recall(name)
    if kept is None:
        kept = (asked(name),)
        all_of_them = {} if recall(_USUAL) else {model.id: asked(model.id) for model in _models()}
        remember({**all_of_them, name: kept[0]})
    return kept[0]


def asked(name: str) -> Prices | None:
    """What the library says of this name: its prices from the first day on, and from each day on which they change."""
    model = _found(name)
    if model is None:
        return None
    lines = model.prices if isinstance(model.prices, list) else []
    starts = {getattr(line.constraint, "start_date", date.min) for line in lines}
    found = []
    for day in sorted({date.min, *starts}):
        prices = model.get_prices(datetime.combine(day, time(12), UTC))
        given = _steps_of(prices.input_mtok)
        cached = _steps_of(prices.cache_read_mtok)
        found.append((day, given or _FREE, cached or given or _FREE, _steps_of(prices.output_mtok) or _FREE))
    return tuple(found)


_FREE: Steps = ((0, Decimal(0)),)


def _steps_of(price: Any) -> Steps | None:
    if price is None:
        return None
    if isinstance(price, Decimal):
        return ((0, price),)
    return ((0, price.base), *((tier.start, tier.price) for tier in price.tiers))


def _found(name: str) -> ModelInfo | None:
    models = _models()
    return next((model for one in names_of(name) for model in models if model.is_match(one)), None)


def _models() -> list[ModelInfo]:
    with importing():
        from genai_prices.data_snapshot import get_snapshot  # late: 165 ms

        snapshot = get_snapshot()  # imports the prices themselves
    return next(provider.models for provider in snapshot.providers if provider.id == "google")


def _is_custom() -> bool:
    """Whether this process has given the library other prices than its own: those are nobody else's."""
    library = sys.modules.get("genai_prices.data_snapshot")
    return library is not None and library._custom_snapshot is not None
