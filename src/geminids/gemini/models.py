"""The model ids and model aliases that each release of Gemini CLI knows."""

from __future__ import annotations

from typing import Literal

import msgspec

from geminids.gemini.features import OLDEST_SUPPORTED, Release

__all__ = ["Model", "models_of"]


class Model(msgspec.Struct, frozen=True):
    """A value for the CLI's option `--model`: the id of a model, or an alias such as `flash`.

    `means` is the model id that an alias stands for. It is None for model ids, and for the alias
    `auto`, because the CLI then chooses the model for each prompt.
    """

    id: str
    kind: Literal["alias", "id"]
    note: str
    means: str | None = None


# From core/src/config/models.ts of 0.54.4, 0.60 and 0.61. The CLI passes any other id to the API
# unchanged, so this table is for information only and rejects nothing. Before 0.61 the CLI also
# replaces gemini-2.5-flash with gemini-3.5-flash if the account can use it (seen on 0.54.4 with an
# API key).
_EVERY = OLDEST_SUPPORTED
# fmt: off
_IDS: tuple[tuple[str, str, str], ...] = (  # since, id, note
    ("0.61", "gemini-3.8-flash",                   "newest flash"),
    ("0.61", "gemini-3.5-flash-lite",              "newest flash-lite; auto uses it to choose the model"),
    (_EVERY, "gemini-3.5-flash",                   "flash"),
    (_EVERY, "gemini-3.1-flash-lite",              "flash-lite"),
    (_EVERY, "gemini-3.1-pro-preview",             "newest pro; needs preview access"),
    (_EVERY, "gemini-3.1-pro-preview-customtools", "used for auto and pro with an API key"),
    (_EVERY, "gemini-3-flash-preview",             "needs preview access"),
    (_EVERY, "gemini-3-pro-preview",               "needs preview access"),
    (_EVERY, "gemini-2.5-pro",                     "used for pro without preview access"),
    (_EVERY, "gemini-2.5-flash",                   "older flash"),
    (_EVERY, "gemini-2.5-flash-lite",              "older flash-lite"),
    (_EVERY, "gemma-4-31b-it",                     "open weights"),
    (_EVERY, "gemma-4-26b-a4b-it",                 "open weights"),
)

_ALIASES: tuple[tuple[str, str, str, str | None], ...] = (  # since, alias, note, means; the last matching row wins
    (_EVERY, "auto",       "the CLI chooses the model for each prompt", None),
    (_EVERY, "pro",        "best quality", "gemini-3.1-pro-preview"),
    (_EVERY, "flash",      "fast", "gemini-3.5-flash"),
    (_EVERY, "flash-lite", "cheapest", "gemini-2.5-flash-lite"),
    ("0.61", "flash",      "fast", "gemini-3.8-flash"),
    ("0.61", "flash-lite", "cheapest", "gemini-3.5-flash-lite"),
)
# fmt: on


def models_of(release: Release) -> tuple[Model, ...]:
    """Return the model aliases and the model ids that this release of the CLI knows. The aliases
    come first.

    >>> from geminids.gemini.features import release_of
    >>> [model.means for model in models_of(release_of("0.60.0")) if model.id == "flash"]
    ['gemini-3.5-flash']
    """
    aliases: dict[str, Model] = {}
    for since, name, note, means in _ALIASES:
        if release.is_since(since):
            aliases[name] = Model(name, "alias", note, means)
    ids = tuple(Model(name, "id", note) for since, name, note in _IDS if release.is_since(since))
    return (*aliases.values(), *ids)
