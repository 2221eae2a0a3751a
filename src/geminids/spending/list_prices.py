"""List prices of Google's models from genai-prices, cached in a file: the library loads slowly."""

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

# If the file has the price of this model, it has the prices of all Google models.
_MARKER_MODEL = "gemini-2.5-pro"


def load() -> None:
    """Load the prices from our file; from the library (165 ms) if the file has none."""
    if stored_prices(_MARKER_MODEL) is None:
        _models()


def listed_rates(model: str, tokens_in: int, on: date) -> Rates | None:
    """The rates of a request with `tokens_in` input tokens on that day; None if the library does
    not know the model.

    The name is looked up unchanged first, then without its version (`names_of`).
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
    stored = stored_prices(name)
    if stored is None:
        stored = (library_prices(name),)
        all_models = (
            {}
            if stored_prices(_MARKER_MODEL)
            else {model.id: library_prices(model.id) for model in _models()}
        )
        store_prices({**all_models, name: stored[0]})
    return stored[0]


def library_prices(name: str) -> Prices | None:
    """The library's prices for this name: those of the first day, and those of each day on which
    they change."""
    model = _find_model(name)
    if model is None:
        return None
    lines = model.prices if isinstance(model.prices, list) else []
    starts = {getattr(line.constraint, "start_date", date.min) for line in lines}
    prices_by_day = []
    for day in sorted({date.min, *starts}):
        prices = model.get_prices(datetime.combine(day, time(12), UTC))
        given = _steps_of(prices.input_mtok)
        cached = _steps_of(prices.cache_read_mtok)
        prices_by_day.append(
            (day, given or _FREE, cached or given or _FREE, _steps_of(prices.output_mtok) or _FREE)
        )
    return tuple(prices_by_day)


_FREE: Steps = ((0, Decimal(0)),)


def _steps_of(price: Any) -> Steps | None:
    if price is None:
        return None
    if isinstance(price, Decimal):
        return ((0, price),)
    return ((0, price.base), *((tier.start, tier.price) for tier in price.tiers))


def _find_model(name: str) -> ModelInfo | None:
    models = _models()
    return next((model for shorter in names_of(name) for model in models if model.is_match(shorter)), None)


def _models() -> list[ModelInfo]:
    with importing():
        from genai_prices.data_snapshot import get_snapshot  # late: 165 ms

        snapshot = get_snapshot()  # imports the prices themselves
    return next(provider.models for provider in snapshot.providers if provider.id == "google")


def _is_custom() -> bool:
    """Whether this process has replaced the library's prices. Such prices are not written to the
    file."""
    library = sys.modules.get("genai_prices.data_snapshot")
    return library is not None and library._custom_snapshot is not None


# (input tokens above which a price applies, dollars per million tokens), in ascending order.
Steps = tuple[tuple[int, Decimal], ...]
# (first day, input, cached input, output). None instead of a tuple: the library does not know the
# model.
Prices = tuple[tuple[date, Steps, Steps, Steps], ...]

# Limits of the file: session files can contain any model name.
_MAX_MODELS = 1000
_MAX_NAME = 200
_VERSION = re.compile(r"genai_prices-(.+)\.dist-info")


class _PriceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file: the version of the library, and the prices by the name that was
    looked up."""

    of: str
    models: dict[str, Prices | None]


def stored_prices(name: str) -> tuple[Prices | None] | None:
    """The stored prices of this name, in a tuple because they may be None; None if the name is not
    stored."""
    known = _load_file()
    return (known[name],) if name in known else None


def store_prices(prices_by_name: Mapping[str, Prices | None]) -> None:
    """Store prices in the file. If it cannot be written, the library is loaded again next time."""
    known = _load_file()
    new = {
        name: prices
        for name, prices in prices_by_name.items()
        if name not in known and len(name) <= _MAX_NAME
    }
    if not new or len(known) + len(new) > _MAX_MODELS:
        return
    known.update(new)
    library, folder = _library(), _folder()
    if library is None or folder is None:
        return
    with suppress(OSError):
        write_private(folder / "listed", msgspec.json.encode(_PriceFile(library, dict(known))))


def clear_cache() -> None:
    """Read the file again at the next look-up."""
    _load_file.cache_clear()


@lru_cache(maxsize=1)
def _load_file() -> dict[str, Prices | None]:
    library, folder = _library(), _folder()
    if library is None or folder is None:
        return {}
    try:
        stored = msgspec.json.decode((folder / "listed").read_bytes(), type=_PriceFile)
    except (OSError, ValueError, RecursionError):  # also what msgspec raises
        return {}
    return stored.models if stored.of == library else {}


def _folder() -> Path | None:
    try:
        return Places.of().prices
    except (OSError, RuntimeError):  # no home
        return None


@lru_cache(maxsize=1)
def _library() -> str | None:
    """Identify the installed library without importing it: its version, and size and time of its
    price file."""
    from importlib.util import find_spec

    try:
        spec = find_spec("genai_prices")
        if spec is None or spec.origin is None:
            return None
        folder = os.path.dirname(spec.origin)
        data = os.stat(os.path.join(folder, "data.py"))
        versions = sorted(filter(_VERSION.fullmatch, os.listdir(os.path.dirname(folder))))
    except (OSError, ValueError):
        return None
    return f"1 {versions} {data.st_size} {data.st_mtime_ns}"
