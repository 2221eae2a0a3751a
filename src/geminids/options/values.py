"""What a single value must be: each check gives one phrase that says what is wrong, or None."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, get_args

from geminids.ids import is_session_id
from geminids.options.model import Effort

__all__ = [
    "Check",
    "dollars",
    "each",
    "effort",
    "file",
    "flag",
    "folder",
    "key_place",
    "kind",
    "model",
    "name",
    "odd_characters",
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
    """What a value is, where the value itself may be a secret."""
    return f"of type {type(value).__name__}"


def shown(value: object) -> str:
    """The value as it was given; what is told of it is redacted and cut later, in one place."""
    try:
        return repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deep"


def optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def text(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"is {shown(value)}, not text"
    if not value.strip():
        return "is empty"
    return odd_characters(value)


def odd_characters(value: str) -> str | None:
    if "\0" in value:
        return "holds a NUL character"
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return "holds half a character (a lone surrogate)"
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
            return f"is {value}: it must be {'0 or more' if zero else 'above 0'} seconds"
        return None

    return check


def dollars(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 10**9:
        return f"is {shown(value)}, not an amount of dollars above 0"
    return None


def key_place(value: Any) -> str | None:
    if what := text(value):
        return what
    scheme, colon, rest = value.partition(":")
    if colon and rest and scheme in ("file", "keyring"):
        return None
    # The value is not shown: somebody may have given the key itself.
    return "is neither file:PATH nor keyring:SERVICE/USER (the key itself has no place in options)"


def whole(low: int, high: int) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            return f"is {shown(value)}, not a whole number from {low} to {high}"
        return None

    return check


def model(value: Any) -> str | None:
    what = text(value)
    if what is None and (value.startswith("-") or any(c.isspace() for c in value)):
        return f"is {shown(value)}: a model has no blanks and no leading dash"
    return what


def session(value: Any) -> str | None:
    if isinstance(value, str) and is_session_id(value):
        return None
    return f"is {shown(value)}: a session id has letters, digits, - and _ only"


def variables(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"is {kind(value)}, not a mapping of names to values"
    for name, text in value.items():
        if not isinstance(name, str) or not name or "\0" in name:
            return f"has {shown(name)}, which cannot be a variable's name"
        if "=" in name:
            return f"has a name with = in it, which begins with {shown(name.partition('=')[0])}"
        if not isinstance(text, str):
            # The value itself is not shown: it may be a secret.
            return f"has a value for {name} that is not text"
        if what := odd_characters(text) or odd_characters(name):
            return f"{what}, in {name!r}"
    return None


def file(value: Any) -> str | None:
    what = text(value)
    if what is not None:
        return what
    if not os.path.exists(value):
        return f"{shown(value)} does not exist"
    if os.path.isdir(value):
        return f"{shown(value)} is a folder, not a file"
    if not os.path.isfile(value):
        return f"{shown(value)} is no regular file"
    return None if os.access(value, os.R_OK) else f"{shown(value)} cannot be read"


def folder(value: Any) -> str | None:
    what = text(value)
    if what is not None:
        return what
    if not os.path.exists(value):
        return f"{shown(value)} does not exist"
    if not os.path.isdir(value):
        return f"{shown(value)} is not a folder"
    return None if os.access(value, os.R_OK | os.X_OK) else f"{shown(value)} cannot be read"


def each(check: Check) -> Check:
    def all_of(value: Any) -> str | None:
        if not isinstance(value, tuple):
            return f"is {shown(value)}, not a list"
        return next((what for one in value if (what := check(one))), None)

    return all_of


def name(value: Any) -> str | None:
    what = text(value)
    return f"has {shown(value)}, which {what}" if what else None


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
