"""Decode the JSON of session files and of ACP messages leniently: if some parts are not valid, the
valid parts are kept.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar, get_origin

import msgspec

__all__ = ["UNREADABLE", "one_line", "replace_surrogates", "struct_of", "value_of"]

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DIGITS = 1000
T = TypeVar("T", bound=msgspec.Struct)


def value_of(line: bytes) -> Any:
    """Decode a line of JSON. Return None if it is not JSON.

    Like JavaScript's JSON.parse, this function accepts lone surrogates, invalid UTF-8 and very
    large numbers.
    """
    try:
        return msgspec.json.decode(line)
    except UNREADABLE:
        pass
    try:
        text = line.removeprefix(_BOM).decode("utf-8", "replace")
        return replace_surrogates(json.loads(text, parse_constant=_refuse, parse_int=_integer))
    except UNREADABLE:
        return None


def one_line(value: Any) -> bytes:
    """Encode a value as JSON on one line."""
    return msgspec.json.encode(value)


def struct_of(kind: type[T], value: dict[str, Any], **known: Any) -> T:
    """Convert a JSON object to a struct of the type `kind`.

    If a value in the object has the wrong type, the field of the struct gets its default value.
    `known` contains the values of fields that are not read from the object.
    """
    try:
        fields: dict[str, Any] = dict(known)
        for field in msgspec.structs.fields(kind):
            if field.encode_name in value and field.name not in fields:
                converted = _convert(value[field.encode_name], field.type)
                if converted is not msgspec.UNSET:
                    fields[field.name] = converted
        return kind(**fields)
    except RecursionError:
        return kind(**known)


def _convert(value: Any, kind: Any) -> Any:
    if kind is msgspec.Raw:
        return msgspec.Raw(one_line(value))
    try:
        return msgspec.convert(value, kind)
    except UNREADABLE:
        pass
    inner = _struct_in(kind)
    if inner is not None:
        if get_origin(kind) is not list:
            return struct_of(inner, value) if isinstance(value, dict) else msgspec.UNSET
        if isinstance(value, list):
            return [struct_of(inner, item) for item in value if isinstance(item, dict)]
    return int(value) if kind is int and _is_count(value) else msgspec.UNSET


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    for part in (kind, *getattr(kind, "__args__", ())):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            return part
    return None


def _is_count(value: Any) -> bool:
    return isinstance(value, float) and 0 <= value < 2**53


def replace_surrogates(value: Any) -> Any:
    """Return a JSON value with all lone surrogates in its strings replaced with U+FFFD. UTF-8
    cannot encode lone surrogates.
    """
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(inner) for key, inner in value.items()}
    return [replace_surrogates(inner) for inner in value] if isinstance(value, list) else value


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _integer(digits: str) -> int | float:
    # Python raises an error for an integer with thousands of digits. JavaScript returns Infinity,
    # as `float` does.
    return int(digits) if len(digits) < _MAX_DIGITS else float(digits)
