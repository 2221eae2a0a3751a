"""Write JSON values as YAML for people: text of several lines stands in literal blocks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import yaml
from yaml.emitter import ScalarAnalysis

__all__ = ["yaml_text"]

# Characters that a literal block cannot hold, or that a reader takes for the end of a line.
_UNFIT = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
# Numbers for readers of YAML 1.2 that PyYAML, which knows YAML 1.1, would not quote.
_NUMBER = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+|0o[0-7]+")
# Readers recurse; none of ours shall fail.
_DEEPEST = 40


def yaml_text(document: Mapping[str, Any]) -> str:
    """Write a document whose values are what JSON has.

    >>> print(yaml_text({"title": "A day", "lines": ["one\\ntwo\\n", "7"], "none": None}), end="")
    title: A day
    lines:
      - |
        one
        two
      - '7'
    none: null
    """
    options = {"sort_keys": False, "allow_unicode": True, "width": math.inf}
    return yaml.dump(_shallow(document, 0), Dumper=_Dumper, **options)  # type: ignore[call-overload, no-any-return]


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper without aliases, with indented lists, and with a literal block for every text that fits."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def analyze_scalar(self, scalar: str) -> ScalarAnalysis:
        # PyYAML itself quotes a text of several lines if one of them ends with a blank, and loses a lone U+0085.
        is_fit = not _UNFIT.search(scalar)
        if is_fit and "\n" not in scalar:
            return super().analyze_scalar(scalar)
        is_block = is_fit and bool(scalar.strip())
        return ScalarAnalysis(scalar, False, True, False, False, False, True, is_block)


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _shallow(value: Any, depth: int) -> Any:
    """Replace what is nested too deeply for a reader by its JSON text."""
    if not value or not isinstance(value, Mapping | list | tuple):
        return value
    if depth > _DEEPEST:
        try:
            return json.dumps(value, ensure_ascii=False)
        except RecursionError:
            return "(nested too deeply)"
    if isinstance(value, Mapping):
        return {str(key): _shallow(inner, depth + 1) for key, inner in value.items()}
    return [_shallow(inner, depth + 1) for inner in value]
