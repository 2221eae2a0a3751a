"""The JSON value in an answer, wherever the model has put it, and what is wrong with it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["Checked", "candidates", "checked"]

_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE
)
_OPENS = re.compile(r"[\[{]")
_MOST_PROBLEMS = 20
# So many places are tried in prose, from the last one on: a long text has many braces that begin no JSON.
_MOST_PLACES = 1000
_NOTHING = "there is no JSON in it"


class Checked(msgspec.Struct, frozen=True):
    """A value that is valid, or the problems of the best candidate."""

    found: bool
    value: Any = None
    problems: tuple[str, ...] = ()


def candidates(text: str) -> Iterator[Any]:
    """The JSON values in a text, likeliest first: blocks (the last first), the whole, and what stands in prose.

    >>> list(candidates('So: {"a": 1} it is.'))
    [{'a': 1}]
    """
    blocks = [match[3] for match in _FENCE.finditer(text)]
    for block in (*reversed(blocks), text):
        try:
            yield json.loads(block)
        except (ValueError, RecursionError):
            continue
    yield from _in_prose(text)


def _in_prose(text: str) -> Iterator[Any]:
    """Values that begin at a brace or bracket and lie in no other one; the last first."""
    decoder = json.JSONDecoder()
    found: list[Any] = []
    at, places = 0, 0
    while (opens := _OPENS.search(text, at)) is not None and places < _MOST_PLACES:
        places += 1
        try:
            value, at = decoder.raw_decode(text, opens.start())
            found.append(value)
        except (ValueError, RecursionError):
            at = opens.start() + 1
    yield from reversed(found)


def checked(text: str, schema: Any) -> Checked:
    """The first candidate that is valid; else the problems of the first one, each with its place."""
    from jsonschema.validators import validator_for

    validator = validator_for(schema)(schema)
    first: tuple[str, ...] | None = None
    for value in candidates(text):
        problems = tuple(_problems(validator, value))
        if not problems:
            return Checked(True, value)
        first = first or problems
    return Checked(False, problems=first or (_NOTHING,))


def _problems(validator: Any, value: Any) -> Iterator[str]:
    try:
        for number, error in enumerate(validator.iter_errors(value)):
            if number >= _MOST_PROBLEMS:
                return
            where = "".join(f"/{part}" for part in error.absolute_path) or "/"
            yield f"{where}: {error.message[:300]}"
    except Exception as error:  # a $ref that leads nowhere, a pattern that is none
        yield f"the schema cannot be used: {type(error).__name__}: {error}"
