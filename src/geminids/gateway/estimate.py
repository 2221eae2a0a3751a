"""What a request will take at least: the bytes of its input that count, and how many make a token. Pure."""

from __future__ import annotations

from collections.abc import Iterator

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
    size, behind = len(raw), 0
    for begins, ends in _strings(raw, _MEDIA, b'"data"', 0, len(raw)):
        # Nothing is looked for within a picture: that would take ten times longer than to step over it.
        size += BYTES_A_TOKEN * _A_PICTURE - (ends - begins) - _sealed(raw, behind, begins)
        behind = ends
    return size - _sealed(raw, behind, len(raw))


def _sealed(raw: bytes, start: int, end: int) -> int:
    return sum(ends - begins for begins, ends in _strings(raw, _SEAL, _SEAL, start, end))


def _strings(raw: bytes, mark: bytes, key: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the strings of this key begin and end that stand behind the mark.

    A mark within a text is no mark: its quotes have backslashes there. Base64 has neither quotes nor backslashes, so
    a string ends at the next quote.
    """
    at = raw.find(mark, start, end)
    while at >= 0:
        found = raw.find(key, at, end)
        colon = raw.find(b":", found + len(key), end) if found >= 0 else -1
        begins = raw.find(b'"', colon, end) + 1 if colon >= 0 else 0
        ends = raw.find(b'"', begins, end)
        if not at < begins <= ends:
            return
        yield begins, ends
        at = raw.find(mark, ends, end)
