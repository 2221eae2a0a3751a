"""Values of JSON as YAML for people: text of several lines stands in blocks, as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["yaml_text"]

_PLAIN = re.compile(r"[A-Za-z_/][\w./()+,!?'*=&%$@~^;-]*(?: [\w./()+,!?'*=&%$@~^;-]+)*", re.ASCII)
# What YAML 1.1 takes for something else than text.
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
# What may not stand in a YAML file as it is, or would be read as the end of a line.
_UNFIT = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
# The limits of readers: of a key before its colon, and of their own recursion.
_LONGEST_KEY = 100
_DEEPEST = 40


def yaml_text(document: Mapping[str, Any]) -> str:
    """A document whose values are what JSON has.

    >>> print(yaml_text({"title": "A day", "lines": ["one\\ntwo\\n", "7"], "none": None}), end="")
    title: A day
    lines:
      - |
        one
        two
      - "7"
    none: null
    """
    return "".join(f"{line}\n" for line in _block(document, 0))


def _block(value: Any, indent: int) -> Iterator[str]:
    pad = " " * indent
    if isinstance(value, Mapping):
        for key, inner in value.items():
            written = _word(str(key))
            if len(written) > _LONGEST_KEY:
                yield f"{pad}? {written}"
                written = ""
            yield from _pair(f"{pad}{written}:", inner, indent)
        return
    for inner in value:
        if _is_block(inner, indent):
            first, *rest = _block(inner, indent + 2)
            yield f"{pad}- {first[indent + 2 :]}"
            yield from rest
        else:
            yield from _scalar(f"{pad}-", inner, indent)


def _pair(head: str, value: Any, indent: int) -> Iterator[str]:
    if _is_block(value, indent):
        yield head
        yield from _block(value, indent + 2)
    else:
        yield from _scalar(head, value, indent)


def _is_block(value: Any, indent: int) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(value) and indent < 2 * _DEEPEST


def _scalar(head: str, value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple):
        yield f"{head} {_folded(value)}"
    elif not isinstance(value, str):
        yield f"{head} {_number(value)}"
    elif "\n" in value and value.strip() and not _UNFIT.search(value):
        yield from _lines(head, value, " " * (indent + 2))
    else:
        yield f"{head} {_word(value)}"


def _lines(head: str, text: str, pad: str) -> Iterator[str]:
    # Blanks in front would be taken for the indentation.
    begins = "2" if text[0] in " \t\n" else ""
    ends = "-" if text[-1] != "\n" else "+" if text[-2:] == "\n\n" else ""
    yield f"{head} |{begins}{ends}"
    for line in text.removesuffix("\n").split("\n"):
        yield f"{pad}{line}" if line else ""


def _word(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return _UNFIT.sub(_escaped, json.dumps(text, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"  # all that is unfit stands below U+10000


def _number(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
        mantissa, exponent, power = repr(value).partition("e")
        return (mantissa if "." in mantissa else f"{mantissa}.0") + exponent + power
    return str(value)


def _folded(value: Any) -> str:
    """What is empty; what is nested too deeply for a reader becomes a text of JSON."""
    if not value:
        return "{}" if isinstance(value, Mapping) else "[]"
    try:
        return _word(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return _word("(nested too deeply)")
