"""Read the caller's own price table from a file, and find the prices of a model in it."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from geminids.errors import GeminidsError

__all__ = ["ModelRate", "PriceTable", "RateTier", "Rates", "bare", "names_of", "rates_in", "read_prices"]

# A suffix of a model name that only identifies a version.
_VERSION = re.compile(r"[-@](?:\d{2,8}|\d{2}-\d{2,4}|preview|latest|exp|experimental|stable|customtools)$")


class RateTier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices of a model, in dollars per million tokens, for requests with more than `above`
    input tokens. The prices apply to all tokens of such a request, not only to the tokens after the
    first `above`.
    """

    above: int
    input: float
    output: float
    cached: float | None = None

    def __post_init__(self) -> None:
        if self.above < 0:
            raise ValueError(f"`above` is {self.above}: it must be 0 or more")
        _check(self, f"the tier above {self.above:,}")


class ModelRate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices of a model, in dollars per million tokens. `model` is the name of the model; it
    may contain the wildcards `*` and `?`.

    `cached` is the price of input from the cache; None means that such input costs as much as other
    input. `tiers` contains the prices for requests with many input tokens.
    """

    model: str
    input: float
    output: float
    cached: float | None = None
    tiers: tuple[RateTier, ...] = ()

    def __post_init__(self) -> None:
        if not bare(self.model):
            raise ValueError("`model` is empty")
        _check(self, self.model)
        begins = [tier.above for tier in self.tiers]
        if len(set(begins)) < len(begins):
            raise ValueError(f"{self.model}: two tiers have the same value of `above`")
        # Make it a tuple, because rates must be hashable.
        msgspec.structs.force_setattr(self, "tiers", tuple(self.tiers))


def _check(rate: ModelRate | RateTier, owner: str) -> None:
    for name in ("input", "output", "cached"):
        dollars = getattr(rate, name)
        if dollars is not None and not (dollars >= 0 and math.isfinite(dollars)):
            raise ValueError(f"{owner}: `{name}` is {dollars}: a price must be a number of 0 or more")
    if rate.cached is not None and rate.cached > rate.input:
        raise ValueError(
            f"{owner}: the price `cached` ({rate.cached}) is higher than the price `input` ({rate.input})"
        )


# The prices of a model are those of the first entry that matches the model's name.
PriceTable = Sequence[ModelRate]


class Rates(msgspec.Struct, frozen=True):
    """The prices that apply to one request, in dollars per million tokens."""

    input: Decimal
    cached: Decimal
    output: Decimal


def bare(model: str) -> str:
    """Return a model name in lower case and without its path, such as `models/`. Prices are looked
    up by this form of the name.

    >>> bare("models/gemini-2.5-pro"), bare("publishers/google/models/Gemini-2.5-Pro")
    ('gemini-2.5-pro', 'gemini-2.5-pro')
    """
    return model.rpartition("/")[2].strip().lower()


def names_of(model: str) -> Iterator[str]:
    """Yield the model's name, then shorter forms of it without version suffixes. They are needed
    because a price table may contain only the name without a version.

    Suffixes such as `lite`, `image`, `tts` and `live` are not removed, because they name different
    models.

    >>> list(names_of("models/gemini-2.5-flash-preview-09-2025"))
    ['gemini-2.5-flash-preview-09-2025', 'gemini-2.5-flash-preview', 'gemini-2.5-flash']
    """
    name, shorter = "", bare(model)
    while shorter != name:
        name = shorter
        yield name
        shorter = _VERSION.sub("", name)


def rates_in(table: PriceTable, model: str, tokens_in: int) -> Rates | None:
    """Return the prices of `model` in this table, for a request with `tokens_in` input tokens.
    Return None if no entry of the table matches the model.

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
    # Convert the text of the number, so that 0.1 becomes exactly a tenth.
    return Decimal(str(dollars))


_HINT = (
    "Write each entry as `[[models]]` with the keys model, input and output (dollars per million tokens): "
    "see docs/reference/prices.md."
)
# Matches the beginning of a JSON object, or of a list of objects. `[models.x]` and `[[models]]` are
# TOML and do not match.
_JSON = re.compile(rb"\s*(?:\{|\[\s*[{\]])")


def read_prices(path: str) -> PriceTable:
    """Read a price table from a TOML or JSON file. Raises `GeminidsError` if the file cannot be
    read or is not valid.
    """
    try:
        status = os.stat(path)
        return _read(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        hint = "Set `prices` to the path of a TOML or JSON file that you may read."
        raise GeminidsError(f"the price table {path} cannot be read: {error.strerror}", hint=hint) from None


# The time and the size are part of the cache key, so that a long-lived process notices a changed
# file.
@lru_cache(maxsize=16)
def _read(path: str, time: int, size: int) -> PriceTable:
    data = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        table = msgspec.convert(_models(_parse(data)), tuple[ModelRate, ...])
    except (ValueError, RecursionError) as error:  # msgspec and tomllib raise ValueError
        raise GeminidsError(f"{path}: {error}".replace("`$", "`models"), hint=_HINT) from None
    if not table:
        raise GeminidsError(f"{path}: the price table has no models", hint=_HINT)
    return table


def _parse(data: bytes) -> Any:
    if _JSON.match(data):
        return msgspec.json.decode(data)
    return tomllib.loads(data.decode())


def _models(value: Any) -> Any:
    """Return the entries of a price table. `value` is the decoded content of its file. If `value`
    is a dict, the entries are in its key `models`; any other key raises `ValueError`. If `value` is
    not a dict, it is returned unchanged.
    """
    if not isinstance(value, dict):
        return value
    if others := [name for name in value if name != "models"]:
        raise ValueError(f"unknown key {', '.join(others)}: a price table may contain only `[[models]]`")
    return value.get("models", ())
