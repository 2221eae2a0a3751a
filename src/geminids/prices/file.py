"""A price table in a file: TOML or JSON, read and checked."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from geminids.errors import GeminidsError
from geminids.prices.table import ModelRate, PriceTable

__all__ = ["read_prices"]

_HINT = "A line is [[models]] with model, input and output (dollars per million tokens); docs/reference/prices.md."
# An object, or a list of them: `[models.x]` and `[[models]]` are TOML.
_JSON = re.compile(rb"\s*(?:\{|\[\s*[{\]])")


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
    data = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        table = msgspec.convert(_models(_parsed(data)), tuple[ModelRate, ...])
    except (ValueError, RecursionError) as error:  # also what msgspec and tomllib raise
        raise GeminidsError(f"{path}: {error}".replace("`$", "`models"), hint=_HINT) from None
    if not table:
        raise GeminidsError(f"{path}: there is no model in it", hint=_HINT)
    return table


def _parsed(data: bytes) -> Any:
    if _JSON.match(data):
        return msgspec.json.decode(data)
    import tomllib  # imported late: most runs have no table

    return tomllib.loads(data.decode())


def _models(value: Any) -> Any:
    """The lines; a name beside them that nobody knows is a mistake, and no remark."""
    if not isinstance(value, dict):
        return value
    if others := [name for name in value if name != "models"]:
        raise ValueError(f"{', '.join(others)}: there is [[models]] in a table of prices, and nothing else")
    return value.get("models", ())
