"""A price table in a file: TOML or JSON, read and checked."""

from __future__ import annotations

import math
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from geminids.errors import GeminidsError
from geminids.prices.table import ModelRate, PriceTable, RateTier

__all__ = ["read_prices"]

_HINT = "A line is [[models]] with model, input and output (dollars per million tokens); docs/reference/prices.md."


def read_prices(path: str) -> PriceTable:
    """The table in this file; raises `GeminidsError` where there is none that could be used."""
    try:
        found = os.stat(path)
        return _read(path, found.st_mtime_ns, found.st_size)
    except OSError as error:
        raise GeminidsError(f"{path}: {error.strerror}", hint=_HINT) from None


# With time and size: a process that lives for days sees a file that was changed.
@lru_cache(maxsize=16)
def _read(path: str, time: int, size: int) -> PriceTable:
    data = Path(path).read_bytes()
    try:
        value = _parsed(data)
        models = value.get("models") if isinstance(value, dict) else value
        table = msgspec.convert(models, tuple[ModelRate, ...])
    except (ValueError, RecursionError) as error:  # also what msgspec and tomllib raise
        raise GeminidsError(f"{path}: {error}", hint=_HINT) from None
    for rate in table:
        if what := _odd(rate):
            raise GeminidsError(f"{path}: {rate.model}: {what}", hint=_HINT)
    if not table:
        raise GeminidsError(f"{path}: there is no model in it", hint=_HINT)
    return table


def _parsed(data: bytes) -> Any:
    if data.lstrip()[:1] in (b"{", b"[") and not data.lstrip().startswith(b"[["):
        return msgspec.json.decode(data)
    import tomllib  # imported late: most runs have no table

    return tomllib.loads(data.decode())


def _odd(rate: ModelRate) -> str | None:
    """What is wrong with the numbers of a line."""
    several: list[ModelRate | RateTier] = [rate, *rate.tiers]
    for one in several:
        for name in ("input", "output", "cached"):
            dollars = getattr(one, name)
            if dollars is not None and not (dollars >= 0 and math.isfinite(dollars)):
                return f"{name} is {dollars}: a price is a number that is not below 0"
    if any(tier.above < 0 for tier in rate.tiers):
        return "a tier begins above a number of tokens, 0 at least"
    return None
