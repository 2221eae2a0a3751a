"""What a request will take at least: the bytes of its input that count, and how many make a token. Pure."""

from __future__ import annotations

__all__ = ["BYTES_A_TOKEN", "counted_bytes"]

# Text and JSON have three to four bytes a token, other scripts fewer.
BYTES_A_TOKEN = 4
# The smallest price of a picture, and of a page; its base64 is no text.
_A_PICTURE = 258
_MEDIA = b'"inlineData"'
# What a model thought, sealed by the API: sent back with each call of a tool, and no text either.
_SEAL = b'"thoughtSignature"'


def counted_bytes(raw: bytes) -> int:
    """The bytes of a request that are text. A picture counts as the text that costs as much, whatever its size.

    >>> counted_bytes(b'{"parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]}')
    1098
    """
    pictures, of_pictures = _values(raw, _MEDIA, b'"data"')
    _, of_seals = _values(raw, _SEAL, _SEAL)
    return len(raw) - of_pictures - of_seals + BYTES_A_TOKEN * _A_PICTURE * pictures


def _values(raw: bytes, mark: bytes, key: bytes) -> tuple[int, int]:
    """How many strings of this key stand behind the mark, and their length together.

    A mark within a text is no mark: its quotes have backslashes there. Base64 has neither quotes nor backslashes, so
    a string ends at the next quote, and 20 MB are passed over at the speed of a search for one byte.
    """
    found = length = 0
    at = raw.find(mark)
    while at >= 0:
        begins = raw.find(b'"', raw.find(b":", _behind(raw, key, at)) + 1) + 1
        ends = raw.find(b'"', begins)
        if not at < begins <= ends:
            break
        found += 1
        length += ends - begins
        at = raw.find(mark, ends)
    return found, length


def _behind(raw: bytes, key: bytes, at: int) -> int:
    """Where the key ends; the mark itself where it has none."""
    found = raw.find(key, at)
    return found + len(key) if found >= 0 else at
