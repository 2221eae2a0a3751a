"""Checks of option values. A check returns None if the value is valid, otherwise a text that says
what is wrong.

The text is, for example, "is empty". The caller puts the name of the option before it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from geminids.ids import is_session_id
from geminids.options.model import Effort

__all__ = [
    "Check",
    "bad_characters",
    "dollars",
    "each",
    "effort",
    "file",
    "flag",
    "folder",
    "key_source",
    "kind",
    "model",
    "most_similar",
    "name",
    "one_of",
    "optional",
    "seconds",
    "session",
    "shown",
    "template_values",
    "text",
    "variable_name",
    "variables",
    "whole",
]

_BIGGEST_BUDGET = 1_000_000

Check = Callable[[Any], str | None]


def kind(value: object) -> str:
    """Return the type of a value as a text, for example "of type int". The value itself is not
    shown, because it may be secret."""
    return f"of type {type(value).__name__}"


def shown(value: object) -> str:
    """Return the `repr` of a value for an error message. If `repr` fails because the value has too
    many levels of nested lists or mappings, return only the type of the value.

    The result can contain secrets: `make_options` masks them later, in the complete message.
    """
    try:
        return repr(value)
    except RecursionError:
        return f"a {type(value).__name__} with too many levels of nesting"


def most_similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`; None if none is similar."""
    import difflib  # imported late: only the message about an unknown name needs it

    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def text(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"is {shown(value)}, not text"
    if not value.strip():
        return "is empty"
    return bad_characters(value)


def bad_characters(value: str) -> str | None:
    if "\0" in value:
        return "contains a NUL character"
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return "contains a lone surrogate, which cannot be encoded as UTF-8"
    return None


def flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"is {shown(value)}, not True or False"


def one_of(*choices: str) -> Check:
    def check(value: Any) -> str | None:
        return None if value in choices else f"is {shown(value)}, not one of {', '.join(choices)}"

    return check


def seconds(*, zero: bool) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"is {shown(value)}, not a number of seconds"
        if not (0 <= value < 10**9) or (value == 0 and not zero):
            return f"is {value} seconds; it must be {'0 or more' if zero else 'above 0'}"
        return None

    return check


def dollars(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 10**9:
        return f"is {shown(value)}, not an amount of dollars above 0"
    return None


def key_source(value: Any) -> str | None:
    if problem := text(value):
        return problem
    scheme, colon, rest = value.partition(":")
    if colon and rest and scheme in ("file", "keyring"):
        return None
    # Do not show the value: it may be the key itself.
    return "must be file:PATH or keyring:SERVICE/USER, not the key itself"


def whole(low: int, high: int) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            return f"is {shown(value)}, not a whole number from {low} to {high}"
        return None

    return check


def model(value: Any) -> str | None:
    problem = text(value)
    if problem is None and (value.startswith("-") or any(c.isspace() for c in value)):
        return f"is {shown(value)}; the name of a model has no spaces and does not start with a dash"
    return problem


def session(value: Any) -> str | None:
    if isinstance(value, str) and is_session_id(value):
        return None
    return f"is {shown(value)}; a session id may contain only letters, digits, - and _"


def variables(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"is {kind(value)}, not a mapping of names to values"
    for name, text in value.items():
        if not isinstance(name, str) or not name or "\0" in name:
            return f"has {shown(name)}, which cannot be the name of a variable"
        if "=" in name:
            return f"has a name that contains = and starts with {shown(name.partition('=')[0])}"
        if not isinstance(text, str):
            # Do not show the value: it may be a secret.
            return f"has a value for {name} that is not text"
        if problem := bad_characters(text) or bad_characters(name):
            return f"{problem}, in {name!r}"
    return None


def file(value: Any) -> str | None:
    problem = text(value)
    if problem is not None:
        return problem
    if not os.path.exists(value):
        return f"{shown(value)} does not exist"
    if os.path.isdir(value):
        return f"{shown(value)} is a folder, not a file"
    if not os.path.isfile(value):
        return f"{shown(value)} is not a regular file"
    return None if os.access(value, os.R_OK) else f"{shown(value)} cannot be read"


def folder(value: Any) -> str | None:
    problem = text(value)
    if problem is not None:
        return problem
    if not os.path.exists(value):
        return f"{shown(value)} does not exist"
    if not os.path.isdir(value):
        return f"{shown(value)} is not a folder"
    return None if os.access(value, os.R_OK | os.X_OK) else f"{shown(value)} cannot be read"


def each(check: Check) -> Check:
    def all_of(value: Any) -> str | None:
        if not isinstance(value, tuple):
            return f"is {shown(value)}, not a list"
        return next((problem for item in value if (problem := check(item))), None)

    return all_of


def name(value: Any) -> str | None:
    problem = text(value)
    return f"has {shown(value)}, which {problem}" if problem else None


def variable_name(value: Any) -> str | None:
    return variables({value: ""}) if isinstance(value, str) else f"has {shown(value)}, not text"


def effort(value: Any) -> str | None:
    if value in get_args(Effort):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _BIGGEST_BUDGET:
        return None
    return f"is {shown(value)}, not one of {', '.join(get_args(Effort))} or a number of tokens"


def template_values(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"is {kind(value)}, not a mapping of names to values"
    for name, text in value.items():
        if not isinstance(name, str) or not name.strip():
            return f"has {shown(name)}, which cannot be a name"
        if not isinstance(text, str):
            return f"has a value for {name} that is not text"
    return None
