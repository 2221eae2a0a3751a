"""Encode values as JSON, even if their texts contain lone surrogates. Python uses lone surrogates
for command-line arguments that are not valid UTF-8.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

__all__ = ["encode_json", "whole"]

_encoder = msgspec.json.Encoder(decimal_format="number")


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON. Lone surrogates (characters that cannot be encoded as UTF-8) are
    replaced with U+FFFD.

    >>> encode_json("a\\ud800b").decode() == '"a\\ufffdb"'
    True
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=_decoded)
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
        return whole(text).encode()


def _decoded(value: Any) -> Any:
    """Decode a `msgspec.Raw` value, which contains JSON text, to a Python value."""
    return msgspec.json.decode(value)


def whole(text: str) -> str:
    """Return the text with each lone surrogate replaced with U+FFFD. The result can be encoded as
    UTF-8.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
