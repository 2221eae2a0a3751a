"""Values as JSON, also where half a character is in them: a word of the command line need not be UTF-8."""

from __future__ import annotations

import json
from typing import Any

import msgspec

__all__ = ["encode_json", "whole"]

_encoder = msgspec.json.Encoder(decimal_format="number")


def encode_json(value: Any) -> bytes:
    """As msgspec writes it; half a character becomes U+FFFD.

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
    """What is JSON already."""
    return msgspec.json.decode(value)


def whole(text: str) -> str:
    """The text as it can be written: half a character is U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
