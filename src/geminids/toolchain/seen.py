"""What executables on this machine answered to `--version`, kept so that they need not be asked again."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from geminids.config.places import Places, write_private

__all__ = ["Sighting", "recall", "remember"]

_MOST = 200


class Sighting(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer. `path` is the real program where the asked one was a shim; `at` is in Unix seconds."""

    version: str | None
    path: str | None = None
    at: float = 0.0


def recall(places: Places, program: Path, *, max_age: float | None = None) -> Sighting | None:
    """The last answer of `program`, unless its file has changed since or the answer is too old."""
    key = _key(program)
    sighting = _load(places).get(key) if key else None
    if sighting is None or (max_age is not None and not 0 <= time.time() - sighting.at <= max_age):
        return None
    return sighting


def remember(places: Places, program: Path, version: str | None, path: str | None = None) -> Sighting:
    """Keep an answer. A disk that cannot be written costs a process next time, nothing else."""
    sighting = Sighting(version, path, time.time())
    key = _key(program)
    if key is None:
        return sighting
    known = _load(places)
    known[key] = sighting
    newest = dict(sorted(known.items(), key=lambda item: item[1].at)[-_MOST:])
    with suppress(OSError):
        write_private(_file(places), msgspec.json.encode(newest))
    return sighting


def _file(places: Places) -> Path:
    return places.root / "seen.json"


def _load(places: Places) -> dict[str, Sighting]:
    try:
        return msgspec.json.decode(_file(places).read_bytes(), type=dict[str, Sighting])
    except (OSError, msgspec.DecodeError):
        return {}


def _key(program: Path) -> str | None:
    # The name as called is part of the key: the shims of mise and volta are all links to one binary.
    try:
        real = program.resolve(strict=True)
        stat = real.stat()
    except OSError:
        return None
    return f"{program}|{real}|{stat.st_mtime_ns}|{stat.st_size}"
