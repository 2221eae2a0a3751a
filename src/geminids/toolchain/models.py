"""Model names by release: the aliases and ids that a release of Gemini CLI knows."""

from __future__ import annotations

from typing import Literal

import msgspec

from geminids.toolchain.releases import Release
from geminids.toolchain.versions import Version

__all__ = ["Model", "models_of"]


class Model(msgspec.Struct, frozen=True):
    """One name for `--model`. An alias stands for `means`, where that is known for the release."""

    id: str
    kind: Literal["alias", "id"]
    note: str
    means: str | None = None


# Read in core/src/config/models.ts of 0.12, 0.13, 0.15.3, 0.16, 0.41.2, 0.45.2, 0.60 and 0.61. Any other id
# is passed on to the API as it is, so this table informs and never refuses.
# fmt: off
_IDS: tuple[tuple[str, str, str], ...] = (  # since, id, note
    ("0.61", "gemini-3.8-flash",                   "newest flash"),
    ("0.61", "gemini-3.5-flash-lite",              "newest flash-lite; the router of auto"),
    ("0.45", "gemini-3.5-flash",                   "flash"),
    ("0.45", "gemini-3.1-flash-lite",              "flash-lite"),
    ("0.30", "gemini-3.1-pro-preview",             "newest pro; needs preview access"),
    ("0.30", "gemini-3.1-pro-preview-customtools", "what auto and pro become with an API key"),
    ("0.22", "gemini-3-flash-preview",             "needs preview access"),
    ("0.16", "gemini-3-pro-preview",               "needs preview access"),
    ("0.1",  "gemini-2.5-pro",                     "what pro becomes without preview access"),
    ("0.1",  "gemini-2.5-flash",                   "older flash"),
    ("0.1",  "gemini-2.5-flash-lite",              "older flash-lite"),
    ("0.41", "gemma-4-31b-it",                     "open weights"),
    ("0.41", "gemma-4-26b-a4b-it",                 "open weights"),
)

_ALIASES: tuple[tuple[str, str, str, str | None], ...] = (  # since, alias, note, means; the last fits
    ("0.6",  "auto",       "a router chooses for each prompt", None),
    ("0.16", "pro",        "the best", "gemini-2.5-pro"),
    ("0.16", "flash",      "the quick", "gemini-2.5-flash"),
    ("0.16", "flash-lite", "the cheapest", "gemini-2.5-flash-lite"),
    ("0.41", "pro",        "the best", "gemini-3.1-pro-preview"),
    ("0.41", "flash",      "the quick", "gemini-3-flash-preview"),
    ("0.61", "flash",      "the quick", "gemini-3.8-flash"),
    ("0.61", "flash-lite", "the cheapest", "gemini-3.5-flash-lite"),
)
# fmt: on


def models_of(release: Release) -> tuple[Model, ...]:
    """The names that `release` knows, aliases first. Before 0.16 `pro` and `flash` are no names at all.

    >>> from geminids.toolchain.releases import release_of
    >>> [model.id for model in models_of(release_of("0.15.3")) if model.kind == "alias"]
    ['auto']
    """
    version = Version.parse(release.version)
    aliases: dict[str, Model] = {}
    for since, name, note, means in _ALIASES:
        if _knows(version, since):
            aliases[name] = Model(name, "alias", note, means)
    ids = tuple(Model(name, "id", note) for since, name, note in _IDS if _knows(version, since))
    return (*aliases.values(), *ids)


def _knows(version: Version | None, since: str) -> bool:
    first = Version.parse(since)
    return version is None or (first is not None and version.core >= first.core)
