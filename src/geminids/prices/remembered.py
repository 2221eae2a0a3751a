"""List prices as they were looked up before, in a file: the library that knows them takes long to load."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

import msgspec

from geminids.config.places import Places, write_private

__all__ = ["Prices", "Steps", "forget", "recall", "remember"]

# Where each of several prices begins: tokens of input, dollars per million.
Steps = tuple[tuple[int, Decimal], ...]
# From a day on: input, from the cache, output. None in place of all days: the library does not know the model.
Prices = tuple[tuple[date, Steps, Steps, Steps], ...]

# More names than there are models: what session files hold is anybody's.
_MOST = 1000
_LONGEST = 200
_VERSION = re.compile(r"genai_prices-(.+)\.dist-info")


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is in the file: of which library, and the prices by the name that was asked for."""

    of: str
    models: dict[str, Prices | None]


def recall(name: str) -> tuple[Prices | None] | None:
    """What the library said of this name, which may be nothing; None where it has to be asked."""
    known = _known()
    return (known[name],) if name in known else None


def remember(found: Mapping[str, Prices | None]) -> None:
    """Keep what the library says. A disk that cannot be written costs its loading next time, nothing else."""
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


def forget() -> None:
    """Read the file anew, when something is asked for next."""
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
    """Which library it is that would be asked, without loading it: its version, and its file with the prices."""
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
