"""Find the JSON value in an answer, and check it against a JSON Schema. Also check the schema.

The functions use the package jsonschema. They do not use files or the network.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import Draft202012Validator, validator_for
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from geminids.log import get_logger

__all__ = ["Checked", "candidates", "check_schema", "checked"]

_log = get_logger("run")

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([^\s`]*)")
# A brace or bracket in prose that may start a JSON value.
_OPENS = re.compile(r'\{(?=[ \t\r\n]*["}])|\[(?=[ \t\r\n]*[\[{"\]0-9tfn-])')
_JSON_LABELS = frozenset(("", "json", "jsonc", "json5"))
_MOST_PROBLEMS = 20
_LONGEST_PROBLEM, _LONGEST_PATH = 400, 200
# The parser starts at each bracket of a text. Stop if it has read this many characters without
# finding a value.
_MOST_IN_VAIN = 20_000_000
_MOST_FOUND = 200
_MOST_HOPS = 100
_NOTHING = "it contains no JSON"


class Checked(msgspec.Struct, frozen=True):
    """The result of a check whether a text contains a JSON value that matches a schema.

    If `found` is True, `value` is the matching value. Otherwise `problems` says what is wrong with
    the JSON value that is most likely the answer.
    """

    found: bool
    value: Any = None
    problems: tuple[str, ...] = ()


def candidates(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text, the most likely first.

    The order is: the last code block, other code blocks, the whole text, values inside sentences.

    >>> list(candidates('So: {"a": 1} it is.'))
    [{'a': 1}]
    """
    return (value for value in _read(text) if not isinstance(value, _Unreadable))


class _Unreadable(msgspec.Struct, frozen=True):
    """Stands for a text that looks like JSON but cannot be parsed. `why` is the reason."""

    why: str


def _read(text: str) -> Iterator[Any]:
    text = text.removeprefix("\ufeff")
    blocks = list(_blocks(text))[::-1]
    # A code block of another language is seldom the answer.
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
    """Yield the language label and the content of each fenced code block.

    A block without an end continues to the end of the text.
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
        return _Unreadable("it has too many levels of nested objects or arrays")


def _in_prose(text: str) -> Iterator[Any]:
    """Yield the JSON objects and arrays inside sentences, the last one first.

    Values inside another value are not yielded.
    """
    values: deque[Any] = deque(maxlen=_MOST_FOUND)
    at, left = 0, _MOST_IN_VAIN + 2 * len(text)
    while (opens := _OPENS.search(text, at)) is not None and left > 0:
        begin = opens.start()
        try:
            value, at = _decoder.raw_decode(text, begin)
            values.append(value)
        except (ValueError, RecursionError) as error:
            at = begin + 1
            # Subtract the number of characters that the parser read. Only JSONDecodeError contains
            # the position at which the parser stopped. Creating that error also takes time, because
            # it counts the lines of the text before the position.
            end = error.pos if isinstance(error, json.JSONDecodeError) else len(text)
            left -= end - begin + begin // 16 + 1
    yield from reversed(values)


def _validator_of(schema: Any) -> Any:
    """Return the jsonschema validator class for the JSON Schema draft that a schema names.

    If the schema names no known draft, return the class for the draft 2020-12.
    """
    named = schema.get("$schema") if isinstance(schema, dict) else None
    # If `$schema` is not a string, the check of the schema itself rejects it.
    return (
        validator_for(schema, default=Draft202012Validator)
        if isinstance(named, str)
        else Draft202012Validator
    )


def checked(text: str, schema: Any) -> Checked:
    """Check the JSON values in a text against a schema, the most likely value first.

    The result contains the first valid value. If no value is valid, the result contains the
    problems of the first value, each with its path in the value.
    """
    # With an explicit registry, jsonschema does not fetch a `$ref` from a server.
    validator = _validator_of(schema)(schema, registry=REGISTRY)
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
    try:
        for number, error in enumerate(validator.iter_errors(value)):
            if number >= _MOST_PROBLEMS:
                return
            yield _describe(error)
            if error.context and (inner := best_match([error])) is not None and inner is not error:
                yield _describe(inner)  # the outer message only says that no given schema matches
    except Exception as error:  # for example a `$ref` to a server, or a schema that refers to itself
        _log.debug("the schema cannot be used", error=error)
        yield _shortened(f"the schema cannot be used: {type(error).__name__}: {error}", _LONGEST_PROBLEM)


def _describe(error: Any) -> str:
    path = "".join(f"/{part}" for part in error.absolute_path) or "/"
    return f"{_shortened(path, _LONGEST_PATH)}: {_shortened(error.message, _LONGEST_PROBLEM)}"


def _shortened(text: str, most: int) -> str:
    """Shorten a message to about `most` characters by removing its middle.

    The start and the end are kept, because the messages of jsonschema start with the value and end
    with the problem.
    """
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … {text[-most // 2 :]}"


def check_schema(schema: Any) -> None:
    """Raise `ValueError` if the schema itself is not valid."""
    if not isinstance(schema, (dict, bool)):
        raise ValueError("must be an object, true or false")
    try:
        if isinstance(schema, dict):
            _validator_of(schema).check_schema(schema)
            _check_references(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        raise ValueError(f"is not a valid JSON Schema: {error.message[:500]} (at /{where})") from None
    except RecursionError:
        raise ValueError("has objects or arrays that are nested too deeply") from None


def _check_references(schema: dict[str, Any]) -> None:
    """Raise `ValueError` if a `$ref` refers to a definition that the schema does not contain.

    The method `check_schema` of jsonschema does not detect this problem.
    """
    dialect = _validator_of(schema).META_SCHEMA["$schema"]
    resource = specification_with(dialect, default=DRAFT202012).create_resource(schema)
    resolver = REGISTRY.with_resource("", resource).crawl().resolver_with_root(resource)
    todo = [(resource, resolver)]
    while todo:
        part, near = todo.pop()
        if isinstance(part.contents, dict):
            try:
                _follow(part.contents, near)
            except Unresolvable as error:
                ref = str(error.ref)[:200]
                raise ValueError(
                    f"refers to {ref!r}, but does not contain that definition; copy the definition into $defs "
                    "(geminids does not download schemas)"
                ) from None
        todo += [(inner, near.in_subresource(inner)) for inner in part.subresources()]


def _follow(contents: Any, resolver: Any) -> None:
    for _ in range(_MOST_HOPS):
        ref = contents.get("$ref") if isinstance(contents, dict) else None
        if not isinstance(ref, str):
            return
        resolved = resolver.lookup(ref)
        contents, resolver = resolved.contents, resolved.resolver
    raise ValueError(f"has a reference that refers to itself: {str(ref)[:200]!r}")
