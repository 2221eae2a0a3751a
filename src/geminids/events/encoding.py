"""Encode values as JSON, including text with lone surrogates (arguments may be invalid UTF-8)."""

from __future__ import annotations

import json
from typing import Any

import msgspec

__all__ = ["encode_json", "whole"]

_encoder = msgspec.json.Encoder(decimal_format="number")


def encode_json(value: Any) -> bytes:
    """Encode like msgspec, but replace lone surrogates by U+FFFD.

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
    """Decode a `msgspec.Raw`, which is JSON already."""
    return msgspec.json.decode(value)


def whole(text: str) -> str:
    """Replace lone surrogates by U+FFFD, so that the text can be encoded."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
