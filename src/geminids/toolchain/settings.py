"""The CLI's settings files: JSON with comments, and one file's values over another's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["Settings", "SettingsProblem", "merge", "read_settings", "without_comments"]

Settings = dict[str, Any]


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
    text = text.removeprefix("\ufeff")
    out: list[str] = []
    at, size = 0, len(text)
    while at < size:
        char = text[at]
        if char == '"':
            end = _string_end(text, at)
            out.append(text[at:end])
        elif text.startswith("//", at):
            end = text.find("\n", at)
            end = size if end < 0 else end
            out.append(" " * (end - at))
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            end = size if end < 0 else end + 2
            out.append("".join("\n" if c == "\n" else " " for c in text[at:end]))
        else:
            end = at + 1
            out.append(char)
        at = end
    return "".join(out)


def _string_end(text: str, at: int) -> int:
    at += 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == '"':
            return at + 1
        else:
            at += 1
    return at


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
