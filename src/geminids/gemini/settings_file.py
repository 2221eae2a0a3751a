"""The CLI's settings files: JSON with comments, and one file's values over another's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["Settings", "SettingsProblem", "merge", "read_settings", "without_comments"]

Settings = dict[str, Any]
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*+"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)


class SettingsProblem(Exception):
    """A settings file that the CLI would refuse."""


def read_settings(text: str, where: str) -> Settings:
    """The settings in a file: JSON with comments, as the CLI reads it.

    >>> read_settings('{"model": {"name": "pro"}} // mine', "settings.json")
    {'model': {'name': 'pro'}}
    """
    try:
        plain = without_comments(text)
        value = json.loads(plain) if plain.strip() else {}
    except ValueError as error:
        raise SettingsProblem(f"{where} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise SettingsProblem(f"{where} holds {type(value).__name__}, not an object")
    return value


def without_comments(text: str) -> str:
    """JSON with `//` and `/* */` blanked out, so that lines and columns stay where they are."""
    return _STRING_OR_COMMENT.sub(
        lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\n]", " ", found[0]),
        text.removeprefix("\ufeff"),
    )


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Settings:
    """`over` on top of `under`, object by object.

    >>> merge({"a": {"x": 1, "y": 1}}, {"a": {"y": 2}})
    {'a': {'x': 1, 'y': 2}}
    """
    merged = dict(under)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
