"""How many bytes of a request count as text, to estimate its tokens before it is sent."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["BYTES_A_TOKEN", "counted_bytes"]

# English text and JSON have three to four bytes a token, other scripts fewer.
BYTES_A_TOKEN = 4
# The fewest tokens that the API charges for a picture or a page. Its base64 is not counted as text.
_PICTURE_TOKENS = 258
_MEDIA = b'"inlineData"'
# The encrypted thoughts of a model. The CLI sends them back with each tool call; they are not text either.
_SIGNATURE = b'"thoughtSignature"'


def counted_bytes(raw: bytes) -> int:
    """The bytes of a request that are text. A picture counts as the text that has as many tokens.

    >>> counted_bytes(b'{"parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]}')
    1098
    """
    size, behind = len(raw), 0
    for begins, ends in _strings(raw, _MEDIA, b'"data"', 0, len(raw)):
        # Skip the data of a picture: to search it would take ten times longer.
        size += BYTES_A_TOKEN * _PICTURE_TOKENS - (ends - begins) - _signature_bytes(raw, behind, begins)
        behind = ends
    return size - _signature_bytes(raw, behind, len(raw))


def _signature_bytes(raw: bytes, start: int, end: int) -> int:
    return sum(ends - begins for begins, ends in _strings(raw, _SIGNATURE, _SIGNATURE, start, end))


def _strings(raw: bytes, mark: bytes, key: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Start and end of each string that is the value of `key` after a `mark`.

    A mark inside a text does not match, because its quotes are escaped there. Base64 has neither quotes nor
    backslashes, so a string ends at the next quote.
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
