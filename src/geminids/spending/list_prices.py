"""List prices of Google's models from genai-prices, cached in a file because the library loads slowly."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from geminids.at_fork import importing
from geminids.config.paths import Places, write_private
from geminids.spending.table import Rates, bare, names_of

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

__all__ = [
    "Prices",
    "Steps",
    "clear_cache",
    "library_prices",
    "listed_rates",
    "load",
    "store_prices",
    "stored_prices",
]

# If the file has the price of this model, it has those of all of Google's models.
_USUAL = "gemini-2.5-pro"


def load() -> None:
    """Load the prices: from our file, or, if it has none, from the library (165 ms)."""
    if stored_prices(_USUAL) is None:
        _models()


def listed_rates(model: str, tokens_in: int, on: date) -> Rates | None:
    """The rates of a request with so much input on that day; None if the library does not know the model.

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


# Without a cache the library needs 75 µs for each request.
@lru_cache(maxsize=1024)
def _steps(name: str, on: date) -> tuple[Steps, Steps, Steps] | None:
    prices = _prices(name)
    if prices is None:
        return None
    _, given, cached, output = next(line for line in reversed(prices) if line[0] <= on)
    return given, cached, output


def _prices(name: str) -> Prices | None:
    if _is_custom():
        return library_prices(name)
    kept = stored_prices(name)
    if kept is None:
        kept = (library_prices(name),)
        all_of_them = (
            {} if stored_prices(_USUAL) else {model.id: library_prices(model.id) for model in _models()}
        )
        store_prices({**all_of_them, name: kept[0]})
    return kept[0]


def library_prices(name: str) -> Prices | None:
    """The prices in the library for this name: from the first day on, and from each day on which they change."""
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
    """Whether this process has given the library other prices than its own. Those are not written to the file."""
    library = sys.modules.get("genai_prices.data_snapshot")
    return library is not None and library._custom_snapshot is not None


# (tokens of input above which a price holds, dollars per million tokens), in ascending order.
Steps = tuple[tuple[int, Decimal], ...]
# (first day, input, cached input, output). None in place of a tuple: the library does not know the model.
Prices = tuple[tuple[date, Steps, Steps, Steps], ...]

# Limits of the file: session files can name any model.
_MOST = 1000
_LONGEST = 200
_VERSION = re.compile(r"genai_prices-(.+)\.dist-info")


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file: which library the prices are from, and the prices by the name that was looked up."""

    of: str
    models: dict[str, Prices | None]


def stored_prices(name: str) -> tuple[Prices | None] | None:
    """The stored prices of this name (in a tuple, because they may be None); None if the name is not stored."""
    known = _known()
    return (known[name],) if name in known else None


def store_prices(found: Mapping[str, Prices | None]) -> None:
    """Store prices in the file. If it cannot be written, the library is loaded again next time."""
    known = _known()
    new = {name: prices for name, prices in found.items() if name not in known and len(name) <= _LONGEST}
    if not new or len(known) + len(new) > _MOST:
        return
    known.update(new)
    library, place = _library(), _folder()
    if library is None or place is None:
        return
    with suppress(OSError):
        write_private(place / "listed", msgspec.json.encode(_Kept(library, dict(known))))


def clear_cache() -> None:
    """Read the file again at the next look-up."""
    _known.cache_clear()


@lru_cache(maxsize=1)
def _known() -> dict[str, Prices | None]:
    library, place = _library(), _folder()
    if library is None or place is None:
        return {}
    try:
        kept = msgspec.json.decode((place / "listed").read_bytes(), type=_Kept)
    except (OSError, ValueError, RecursionError):  # also what msgspec raises
        return {}
    return kept.models if kept.of == library else {}


def _folder() -> Path | None:
    try:
        return Places.of().prices
    except (OSError, RuntimeError):  # no home
        return None


@lru_cache(maxsize=1)
def _library() -> str | None:
    """Identify the installed library without importing it: its version, and size and time of its price file."""
    from importlib.util import find_spec

    try:
        spec = find_spec("genai_prices")
        if spec is None or spec.origin is None:
            return None
        folder = os.path.dirname(spec.origin)
        data = os.stat(os.path.join(folder, "data.py"))
        beside = sorted(filter(_VERSION.fullmatch, os.listdir(os.path.dirname(folder))))
    except (OSError, ValueError):
        return None
    return f"1 {beside} {data.st_size} {data.st_mtime_ns}"
