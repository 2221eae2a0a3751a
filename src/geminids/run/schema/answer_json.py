"""Find the JSON value in an answer and validate it against a schema. Pure."""

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
# A brace or bracket in prose that may start a JSON value.
_OPENS = re.compile(r'\{(?=[ \t\r\n]*["}])|\[(?=[ \t\r\n]*[\[{"\]0-9tfn-])')
_JSON_LABELS = frozenset(("", "json", "jsonc", "json5"))
_MOST_PROBLEMS = 20
_LONGEST_PROBLEM, _LONGEST_PATH = 400, 200
# A text full of brackets makes the parser start at each of them. Give up after so many characters
# without a value.
_MOST_IN_VAIN = 20_000_000
_MOST_FOUND = 200
_NOTHING = "it contains no JSON"


class Checked(msgspec.Struct, frozen=True):
    """The valid value, or the problems of the best candidate."""

    found: bool
    value: Any = None
    problems: tuple[str, ...] = ()


def candidates(text: str) -> Iterator[Any]:
    """The JSON values in a text, likeliest first: last code block, other blocks, whole text, prose.

    >>> list(candidates('So: {"a": 1} it is.'))
    [{'a': 1}]
    """
    return (value for value in _read(text) if not isinstance(value, _Unreadable))


class _Unreadable(msgspec.Struct, frozen=True):
    """A text that looks like JSON but cannot be parsed, and why."""

    why: str


def _read(text: str) -> Iterator[Any]:
    text = text.removeprefix("\ufeff")
    blocks = list(_blocks(text))[::-1]
    # Blocks of another language are seldom the answer.
    likely = [block for label, block in blocks if label.lower() in _JSON_LABELS]
    others = [block for label, block in blocks if label.lower() not in _JSON_LABELS]
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
    """The labels and contents of fenced blocks.

    A block that is never closed extends to the end of the text.
    """
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
    raise ValueError(f"{word} is not JSON")


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
    """Outermost values that start with a brace or bracket, the last first."""
    values: deque[Any] = deque(maxlen=_MOST_FOUND)
    at, left = 0, _MOST_IN_VAIN + 2 * len(text)
    while (opens := _OPENS.search(text, at)) is not None and left > 0:
        begin = opens.start()
        try:
            value, at = _decoder.raw_decode(text, begin)
            values.append(value)
        except (ValueError, RecursionError) as error:
            at = begin + 1
            # Charge the characters that the parser read. Only JSONDecodeError reports the position,
            # and creating it counts the lines of the whole text before it.
            end = error.pos if isinstance(error, json.JSONDecodeError) else len(text)
            left -= end - begin + begin // 16 + 1
    yield from reversed(values)


def validator_of(schema: Any) -> Any:
    """The validator class of the draft that a schema names, or of the newest draft."""
    from jsonschema.validators import Draft202012Validator, validator_for

    named = schema.get("$schema") if isinstance(schema, dict) else None
    # If `$schema` is not a string, the meta-schema rejects it.
    return (
        validator_for(schema, default=Draft202012Validator)
        if isinstance(named, str)
        else Draft202012Validator
    )


def checked(text: str, schema: Any) -> Checked:
    """Return the first valid candidate, or the problems of the first one with their paths."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    # With an explicit registry, jsonschema does not fetch a `$ref` from a server.
    validator = validator_of(schema)(schema, registry=REGISTRY)
    first: tuple[str, ...] | None = None
    unreadable: str | None = None
    for value in _read(text):
        if isinstance(value, _Unreadable):
            unreadable = unreadable or f"its JSON cannot be parsed: {value.why}"
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
            yield _describe(error)
            if error.context and (inner := best_match([error])) is not None and inner is not error:
                yield _describe(inner)  # "not valid under any of the given schemas" alone does not help
    except Exception as error:  # a `$ref` to a server, a schema that refers to itself
        _log.debug("the schema cannot be used", error=error)
        yield _shortened(f"the schema cannot be used: {type(error).__name__}: {error}", _LONGEST_PROBLEM)


def _describe(error: Any) -> str:
    path = "".join(f"/{part}" for part in error.absolute_path) or "/"
    return f"{_shortened(path, _LONGEST_PATH)}: {_shortened(error.message, _LONGEST_PROBLEM)}"


def _shortened(text: str, most: int) -> str:
    """Shorten in the middle: jsonschema's messages start with the value, end with the problem."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … {text[-most // 2 :]}"
