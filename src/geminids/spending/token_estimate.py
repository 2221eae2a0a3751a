"""Estimate the number of tokens of a request before it is sent, from the number of bytes of its
text.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["BYTES_PER_TOKEN", "counted_bytes"]

# English text and JSON have three to four bytes per token, other scripts fewer.
BYTES_PER_TOKEN = 4
# The minimum number of tokens that the API charges for a picture or a page. Its base64 data is not
# counted as text.
_PICTURE_TOKENS = 258
_MEDIA = b'"inlineData"'
# The field with the encrypted thoughts of a model. The CLI sends them back with each tool call.
# They are not counted as text either.
_SIGNATURE = b'"thoughtSignature"'


def counted_bytes(raw: bytes) -> int:
    """Return the number of bytes in the body of a request that count as text. Divide this number by
    `BYTES_PER_TOKEN` to estimate the tokens of the request.

    The data of a picture is not counted. Instead, `258 * BYTES_PER_TOKEN` bytes are added for each
    picture. The encrypted thoughts of the model are not counted either.

    >>> counted_bytes(b'{"parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]}')
    1098
    """
    size, searched_to = len(raw), 0
    for begins, ends in _strings(raw, _MEDIA, b'"data"', 0, len(raw)):
        # Skip the data of a picture: searching it would take ten times longer.
        size += (
            BYTES_PER_TOKEN * _PICTURE_TOKENS - (ends - begins) - _signature_bytes(raw, searched_to, begins)
        )
        searched_to = ends
    return size - _signature_bytes(raw, searched_to, len(raw))


def _signature_bytes(raw: bytes, start: int, end: int) -> int:
    return sum(ends - begins for begins, ends in _strings(raw, _SIGNATURE, _SIGNATURE, start, end))


def _strings(raw: bytes, mark: bytes, key: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Find string values in the JSON text `raw`, without parsing it. After each occurrence of
    `mark`, take the next occurrence of `key`, and yield where its value starts and ends in `raw`.
    `mark` and `key` are field names in quotes; they can be the same name. Only the part of `raw`
    from `start` to `end` is searched.

    A field name inside another string does not match, because its quotes are escaped there. The
    values are base64, which contains no quotes and no backslashes. So each value ends at the next
    quote.
    """
    at = raw.find(mark, start, end)
    while at >= 0:
        key_at = raw.find(key, at, end)
        colon = raw.find(b":", key_at + len(key), end) if key_at >= 0 else -1
        begins = raw.find(b'"', colon, end) + 1 if colon >= 0 else 0
        ends = raw.find(b'"', begins, end)
        if not at < begins <= ends:
            return
        yield begins, ends
        at = raw.find(mark, ends, end)
