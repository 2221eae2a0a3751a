"""The caller's own price table: read it from a file, and find a model's rates in it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from geminids.errors import GeminidsError

__all__ = ["ModelRate", "PriceTable", "RateTier", "Rates", "bare", "names_of", "rates_in", "read_prices"]

# A suffix that only identifies a version of the model.
_VERSION = re.compile(r"-(?:\d{2,8}|\d{2}-\d{2,4}|preview|latest|exp|experimental|stable|customtools)$")


class RateTier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of all tokens of a request with more than `above` input tokens."""

    above: int
    input: float
    output: float
    cached: float | None = None

    def __post_init__(self) -> None:
        if self.above < 0:
            raise ValueError(f"above is {self.above}: it must be 0 or more")
        _check(self, f"the tier above {self.above:,}")


class ModelRate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of a model in dollars per million tokens. `model` may have `*` and `?`.

    `cached` is the price of input from the cache; None: the same as other input.
    """

    model: str
    input: float
    output: float
    cached: float | None = None
    tiers: tuple[RateTier, ...] = ()

    def __post_init__(self) -> None:
        if not bare(self.model):
            raise ValueError("model is empty")
        _check(self, self.model)
        begins = [tier.above for tier in self.tiers]
        if len(set(begins)) < len(begins):
            raise ValueError(f"{self.model}: two tiers have the same value of above")
        # Make it a tuple, because rates must be hashable.
        msgspec.structs.force_setattr(self, "tiers", tuple(self.tiers))


def _check(rate: ModelRate | RateTier, owner: str) -> None:
    for name in ("input", "output", "cached"):
        dollars = getattr(rate, name)
        if dollars is not None and not (dollars >= 0 and math.isfinite(dollars)):
            raise ValueError(f"{owner}: {name} is {dollars}: a price must be a number of 0 or more")
    if rate.cached is not None and rate.cached > rate.input:
        raise ValueError(f"{owner}: cached is {rate.cached}, which is more than input ({rate.input})")


# The first entry that matches a model's name applies.
PriceTable = Sequence[ModelRate]


class Rates(msgspec.Struct, frozen=True):
    """Dollars per million tokens for one request, in its tier."""

    input: Decimal
    cached: Decimal
    output: Decimal


def bare(model: str) -> str:
    """The model name without its path, in lower case. Prices are looked up by it.

    >>> bare("models/gemini-2.5-pro"), bare("publishers/google/models/Gemini-2.5-Pro")
    ('gemini-2.5-pro', 'gemini-2.5-pro')
    """
    return model.rpartition("/")[2].strip().lower()


def names_of(model: str) -> Iterator[str]:
    """Yield the name, then shorter names without version suffixes: the API serves
    `gemini-2.5-flash-001` for `gemini-2.5-flash`. `lite`, `image`, `tts` and `live` are different
    models, so they stay.

    >>> list(names_of("models/gemini-2.5-flash-preview-09-2025"))
    ['gemini-2.5-flash-preview-09-2025', 'gemini-2.5-flash-preview', 'gemini-2.5-flash']
    """
    name, shorter = "", bare(model)
    while shorter != name:
        name = shorter
        yield name
        shorter = _VERSION.sub("", name)


def rates_in(table: PriceTable, model: str, tokens_in: int) -> Rates | None:
    """The rates of a request with `tokens_in` input tokens in this table; None if no entry matches
    the model.

    >>> rates_in([ModelRate(model="gemini-9*", input=1, output=2)], "gemini-9-pro", 10)
    Rates(input=Decimal('1'), cached=Decimal('1'), output=Decimal('2'))
    """
    for name in names_of(model):
        for rate in table:
            if fnmatchcase(name, bare(rate.model)):
                return _rates(_tier(rate, tokens_in))
    return None


def _tier(rate: ModelRate, tokens_in: int) -> ModelRate | RateTier:
    reached = [tier for tier in rate.tiers if tokens_in > tier.above]
    return max(reached, key=lambda tier: tier.above) if reached else rate


@lru_cache(maxsize=256)
def _rates(rate: ModelRate | RateTier) -> Rates:
    cached = rate.input if rate.cached is None else rate.cached
    return Rates(_exact(rate.input), _exact(cached), _exact(rate.output))


def _exact(dollars: float) -> Decimal:
    # Convert the text, so that 0.1 becomes exactly a tenth.
    return Decimal(str(dollars))


_HINT = "Each entry is [[models]] with model, input and output (dollars per million tokens): docs/reference/prices.md."
# A JSON object, or a list of them. `[models.x]` and `[[models]]` are TOML.
_JSON = re.compile(rb"\s*(?:\{|\[\s*[{\]])")


def read_prices(path: str) -> PriceTable:
    """Read a price table from a file. Raises `GeminidsError` if it is not valid."""
    try:
        status = os.stat(path)
        return _read(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise GeminidsError(f"{path}: {error.strerror}", hint=_HINT) from None


# Time and size are part of the key, so that a long-lived process sees a changed file.
@lru_cache(maxsize=16)
def _read(path: str, time: int, size: int) -> PriceTable:
    data = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        table = msgspec.convert(_models(_parse(data)), tuple[ModelRate, ...])
    except (ValueError, RecursionError) as error:  # also what msgspec and tomllib raise
        raise GeminidsError(f"{path}: {error}".replace("`$", "`models"), hint=_HINT) from None
    if not table:
        raise GeminidsError(f"{path}: the price table has no models", hint=_HINT)
    return table


def _parse(data: bytes) -> Any:
    if _JSON.match(data):
        return msgspec.json.decode(data)
    import tomllib  # late: most runs have no price table

    return tomllib.loads(data.decode())


def _models(value: Any) -> Any:
    """The entries of the table. Any other key than `models` is an error."""
    if not isinstance(value, dict):
        return value
    if others := [name for name in value if name != "models"]:
        raise ValueError(f"{', '.join(others)}: a price table may contain only [[models]]")
    return value.get("models", ())
