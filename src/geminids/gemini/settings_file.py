"""Read and merge the CLI's settings files. Their format is JSON with comments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["Settings", "SettingsProblem", "merge", "read_settings", "without_comments"]

Settings = dict[str, Any]
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*+"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)


class SettingsProblem(Exception):
    """Raised if a settings file of the CLI is not valid. The CLI would reject this file too."""


def read_settings(text: str, where: str) -> Settings:
    """Parse the text of a settings file of the CLI (JSON with comments), in the same way as the
    CLI.

    If the text is not valid, `SettingsProblem` is raised. `where` is the name that the error
    message uses for the file.

    >>> read_settings('{"model": {"name": "pro"}} // mine', "settings.json")
    {'model': {'name': 'pro'}}
    """
    try:
        plain = without_comments(text)
        value = json.loads(plain) if plain.strip() else {}
    except ValueError as error:
        raise SettingsProblem(f"{where} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise SettingsProblem(f"{where} must contain a JSON object {{…}}, but contains another JSON value")
    return value


def without_comments(text: str) -> str:
    """Return a JSON text with its comments replaced with spaces. Spaces keep the line and column
    numbers in error messages correct.
    """
    return _STRING_OR_COMMENT.sub(
        lambda match: match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0]),
        text.removeprefix("\ufeff"),
    )


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Settings:
    """Return a new settings object with the values of `under` and `over`.

    If both contain the same key and both values are objects, the two values are merged in the same
    way. Otherwise, the value in `over` is used.

    >>> merge({"a": {"x": 1, "y": 1}}, {"a": {"y": 2}})
    {'a': {'x': 1, 'y': 2}}
    """
    merged = dict(under)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
