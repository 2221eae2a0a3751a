"""The JSON value in an answer, wherever the model has put it, and what is wrong with it. Pure."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from geminids.log import get_logger

__all__ = ["Checked", "candidates", "checked", "validator_of"]

_log = get_logger("run")

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([^\s`]*)")
# Where a value can begin in prose: a brace or bracket that JSON could go on behind.
_OPENS = re.compile(r'\{(?=[ \t\r\n]*["}])|\[(?=[ \t\r\n]*[\[{"\]0-9tfn-])')
_OURS = frozenset(("", "json", "jsonc", "json5"))
_MOST_PROBLEMS = 20
_LONGEST_PROBLEM, _LONGEST_PLACE = 400, 200
# A text of nothing but brackets makes a reader begin anew at each of them: so many characters are read in vain.
_MOST_IN_VAIN = 20_000_000
_MOST_FOUND = 200
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
    return (value for value in _read(text) if not isinstance(value, _Unreadable))


class _Unreadable(msgspec.Struct, frozen=True):
    """What should have been JSON, and why it is none."""

    why: str


def _read(text: str) -> Iterator[Any]:
    text = text.removeprefix("\ufeff")
    blocks = list(_blocks(text))[::-1]
    # What a program wrote or shall run is seldom the answer.
    likely = [block for label, block in blocks if label.lower() in _OURS]
    others = [block for label, block in blocks if label.lower() not in _OURS]
    for block in likely:
        yield _value(block)
    for block in others:
        if not isinstance(value := _value(block), _Unreadable):
            yield value
    whole = _value(text)
    if not isinstance(whole, _Unreadable) or text.lstrip()[:1] in ("{", "["):
        yield whole
    if isinstance(whole, _Unreadable):
        yield from _in_prose(text)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks and their labels, line by line; one that is never closed goes to the end of the text."""
    fence, label, inside = "", "", list[str]()
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if fence:
            bare = line.strip(" \t")
            if len(bare) >= len(fence) and bare == fence[0] * len(bare):
                yield label, "\n".join(inside)
                fence, inside = "", []
            else:
                inside.append(line)
        elif (opens := _FENCE.match(line)) and not (opens[1][0] == "`" and "`" in line[opens.end() :]):
            fence, label = opens[1], opens[2]
    if fence:
        yield label, "\n".join(inside)


def _no_json(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _float(digits: str) -> float:
    number = float(digits)
    return _no_json(digits[:40]) if math.isinf(number) else number


_decoder = json.JSONDecoder(parse_float=_float, parse_constant=_no_json)


def _value(text: str) -> Any:
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        return _Unreadable(f"{error.msg} (line {error.lineno}, column {error.colno})")
    except ValueError as error:
        return _Unreadable(str(error))
    except RecursionError:
        return _Unreadable("it is nested too deeply")


def _in_prose(text: str) -> Iterator[Any]:
    """Values that begin at a brace or bracket and lie in no other one; the last first."""
    found: deque[Any] = deque(maxlen=_MOST_FOUND)
    at, left = 0, _MOST_IN_VAIN + 2 * len(text)
    while (opens := _OPENS.search(text, at)) is not None and left > 0:
        begin = opens.start()
        try:
            value, at = _decoder.raw_decode(text, begin)
            found.append(value)
        except (ValueError, RecursionError) as error:
            at = begin + 1
            # Only some errors say how far it was read; and these have counted all lines before it.
            end = error.pos if isinstance(error, json.JSONDecodeError) else len(text)
            left -= end - begin + begin // 16 + 1
    yield from reversed(found)


def validator_of(schema: Any) -> Any:
    """The validator of the draft that a schema names, or of the newest."""
    from jsonschema.validators import Draft202012Validator, validator_for

    named = schema.get("$schema") if isinstance(schema, dict) else None
    # What is no name is for the meta-schema to refuse.
    return (
        validator_for(schema, default=Draft202012Validator)
        if isinstance(named, str)
        else Draft202012Validator
    )


def checked(text: str, schema: Any) -> Checked:
    """The first candidate that is valid; else the problems of the first one, each with its place."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    # With a registry of its own it asks no server for what a `$ref` names.
    validator = validator_of(schema)(schema, registry=REGISTRY)
    first: tuple[str, ...] | None = None
    unreadable: str | None = None
    for value in _read(text):
        if isinstance(value, _Unreadable):
            unreadable = unreadable or f"the JSON in it cannot be read: {value.why}"
            continue
        problems = tuple(_problems(validator, value))
        if not problems:
            return Checked(True, value)
        first = first or problems
    return Checked(False, problems=first or (unreadable or _NOTHING,))


def _problems(validator: Any, value: Any) -> Iterator[str]:
    from jsonschema.exceptions import best_match

    try:
        for number, error in enumerate(validator.iter_errors(value)):
            if number >= _MOST_PROBLEMS:
                return
            yield _told(error)
            if error.context and (inner := best_match([error])) is not None and inner is not error:
                yield _told(inner)  # "not valid under any of the given schemas" helps nobody
    except Exception as error:  # a `$ref` to a server, a schema that leads to itself
        _log.debug("the schema cannot be used", error=error)
        yield _shortened(f"the schema cannot be used: {type(error).__name__}: {error}", _LONGEST_PROBLEM)


def _told(error: Any) -> str:
    where = "".join(f"/{part}" for part in error.absolute_path) or "/"
    return f"{_shortened(where, _LONGEST_PLACE)}: {_shortened(error.message, _LONGEST_PROBLEM)}"


def _shortened(text: str, most: int) -> str:
    """Cut in the middle: the value stands first, and what is wrong with it last."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … {text[-most // 2 :]}"
