"""Find the list prices of Google's models. The prices come from the library genai-prices. They are
also stored in a cache file, because importing the library is slow.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from importlib.util import find_spec
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

# If the cache file has the price of this model, it has the prices of all Google models.
_MARKER_MODEL = "gemini-2.5-pro"


def load() -> None:
    """Load the prices from the cache file into memory. If the file has no prices, import the
    library genai-prices instead (165 ms).
    """
    if stored_prices(_MARKER_MODEL) is None:
        _models()


def listed_rates(model: str, tokens_in: int, on: date) -> Rates | None:
    """Return the list prices of `model` for a request with `tokens_in` input tokens on the day
    `on`. Return None if the library genai-prices does not know the model.

    The model's name is looked up first, then its shorter forms without version suffixes (see
    `names_of`). A name must be equal to a name in the library. The library's own rules also accept
    longer names that begin with a known name; they are not used, because a longer name may belong
    to another model.
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


# The result is cached, because the library needs 75 µs for each request.
@lru_cache(maxsize=1024)
def _steps(name: str, on: date) -> tuple[Steps, Steps, Steps] | None:
    prices = _prices(name)
    if prices is None:
        return None
    _, uncached, cached, output = next(line for line in reversed(prices) if line[0] <= on)
    return uncached, cached, output


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
    """Return the prices of the model `name` from the library genai-prices. Return None if the
    library does not know the model.

    The result has one item for the first prices, and one for each day on which the prices change.
    """
    model = _find_model(name)
    if model is None:
        return None
    lines = model.prices if isinstance(model.prices, list) else []
    starts = {getattr(line.constraint, "start_date", date.min) for line in lines}
    prices_by_day = []
    for day in sorted({date.min, *starts}):
        prices = model.get_prices(datetime.combine(day, time(12), UTC))
        uncached = _steps_of(prices.input_mtok)
        cached = _steps_of(prices.cache_read_mtok)
        prices_by_day.append(
            (day, uncached or _FREE, cached or uncached or _FREE, _steps_of(prices.output_mtok) or _FREE)
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
    names = [_LISTED_AS.get(shorter, shorter) for shorter in names_of(name)]
    # A match alone is not enough: the library treats every name that begins with gemini-1.5-flash
    # as that model.
    return next(
        (
            model
            for name in names
            for model in _models()
            if model.is_match(name) and name in _known_names(model)
        ),
        None,
    )


def _known_names(model: ModelInfo) -> set[str]:
    """Return the model's id, and all names and parts of names (for example prefixes) with which the
    rules of the library genai-prices recognize this model.
    """
    names, rules = {model.id}, [model.match]
    while rules:
        rule: Any = rules.pop()
        rules += [*getattr(rule, "or_", ()), *getattr(rule, "and_", ())]
        names |= {text for kind in _NAME_RULES if (text := getattr(rule, kind, None))}
    return names


# The library has the price of this model only under the name of another provider.
_LISTED_AS = {"gemini-1.5-flash-8b": "gemini-flash-1.5-8b"}
_NAME_RULES = ("equals", "starts_with", "ends_with", "contains")


def _models() -> list[ModelInfo]:
    with importing():
        from genai_prices.data_snapshot import get_snapshot  # imported late: it takes 165 ms

        snapshot = get_snapshot()  # this call imports the prices
    return next(provider.models for provider in snapshot.providers if provider.id == "google")


def _is_custom() -> bool:
    """Return whether the host program has replaced the price data of the library genai-prices with
    its own. Custom prices are not written to the cache file.
    """
    library = sys.modules.get("genai_prices.data_snapshot")
    return library is not None and library._custom_snapshot is not None


# Pairs in ascending order: the number of input tokens above which a price applies, and the price in
# dollars per million tokens.
Steps = tuple[tuple[int, Decimal], ...]
# One entry for each change of the prices: first day, input, cached input, output. If a variable has
# the type `Prices | None`, None means that the library does not know the model.
Prices = tuple[tuple[date, Steps, Steps, Steps], ...]

# Limits of the cache file. They are needed because session files can contain any model name.
_MAX_MODELS = 1000
_MAX_NAME = 200
_VERSION = re.compile(r"genai_prices-(.+)\.dist-info")


class _PriceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the cache file. `of` identifies the version of the library genai-prices that
    the prices come from. `models` has one entry for each model that was looked up: the model's name
    and its prices. The prices are None if the library does not know the model.
    """

    of: str
    models: dict[str, Prices | None]


def stored_prices(name: str) -> tuple[Prices | None] | None:
    """Return the prices of the model `name` from the cache file, in one of these forms:

    - `(prices,)`: the file contains the model's prices
    - `(None,)`: the file says that the library does not know the model
    - `None`: the file does not contain the name
    """
    known = _load_file()
    return (known[name],) if name in known else None


def store_prices(prices_by_name: Mapping[str, Prices | None]) -> None:
    """Add prices to the cache file. `prices_by_name` maps model names to prices; None means that
    the library does not know the model. If the file cannot be written, the prices stay in memory
    only, and the next process imports the library again.

    Names that are too long are left out. If the file would then contain too many models, the file
    is not changed.
    """
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
    """Remove the prices from memory, so that the next look-up reads the cache file again. The file
    is not changed.
    """
    _load_file.cache_clear()


@lru_cache(maxsize=1)
def _load_file() -> dict[str, Prices | None]:
    library, folder = _library(), _folder()
    if library is None or folder is None:
        return {}
    try:
        stored = msgspec.json.decode((folder / "listed").read_bytes(), type=_PriceFile)
    except (OSError, ValueError, RecursionError):  # msgspec raises ValueError
        return {}
    return stored.models if stored.of == library else {}


def _folder() -> Path | None:
    try:
        return Places.of().prices
    except (OSError, RuntimeError):  # the user has no home directory
        return None


@lru_cache(maxsize=1)
def _library() -> str | None:
    """Return a text that identifies the installed library genai-prices: its version, and the size
    and time of its data file. Return None if the library is not installed. This function does not
    import the library.
    """

    try:
        spec = find_spec("genai_prices")
        if spec is None or spec.origin is None:
            return None
        folder = os.path.dirname(spec.origin)
        data = os.stat(os.path.join(folder, "data.py"))
        versions = sorted(filter(_VERSION.fullmatch, os.listdir(os.path.dirname(folder))))
    except (OSError, ValueError):
        return None
    return f"2 {versions} {data.st_size} {data.st_mtime_ns}"
