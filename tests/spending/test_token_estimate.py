"""What counts of a request before it leaves."""

from __future__ import annotations

import base64
import os
import time

import msgspec

from geminids.spending.token_estimate import BYTES_PER_TOKEN, counted_bytes


def _request(*parts: object) -> bytes:
    return msgspec.json.encode({"contents": [{"role": "user", "parts": list(parts)}]})


def _picture(size: int) -> dict[str, object]:
    data = base64.b64encode(os.urandom(size)).decode()
    return {"inlineData": {"mimeType": "image/png", "data": data}}


def test_text_counts_with_all_its_bytes() -> None:
    """Nothing is taken off a request of words."""
    raw = _request({"text": "What is a meteor?"})
    assert counted_bytes(raw) == len(raw)


def test_a_picture_counts_the_same_whatever_its_size() -> None:
    """Three kilobytes or three megabytes: 258 tokens, and not their base64."""
    assert counted_bytes(_request(_picture(3_000))) == counted_bytes(_request(_picture(3_000_000)))
    one, two = (counted_bytes(_request(*[_picture(3_000)] * n)) for n in (1, 2))
    assert 258 <= (two - one) / BYTES_PER_TOKEN < 258 + 20


def test_the_order_of_a_pictures_fields_does_not_matter() -> None:
    """`data` may stand before `mimeType`."""
    data = base64.b64encode(bytes(30_000)).decode()
    assert counted_bytes(_request({"inlineData": {"data": data, "mimeType": "image/png"}})) < 2_000


def test_sealed_thoughts_are_no_text() -> None:
    """The signature that goes with a call of a tool is passed over, and what stands behind it is not."""
    call = {"functionCall": {"name": "ls", "args": {}}, "thoughtSignature": "A" * 40_000}
    raw = _request(call, {"text": "x" * 1_000})
    assert 1_000 < counted_bytes(raw) < 1_300


def test_words_about_pictures_are_text() -> None:
    """A text that quotes a request with a picture counts in full."""
    raw = _request({"text": _request(_picture(3_000)).decode()})
    assert counted_bytes(raw) == len(raw)


def test_odd_bodies_end_too() -> None:
    """Half a request, or none, is counted, and nothing hangs."""
    for raw in (
        b"",
        b'"inlineData"',
        b'{"inlineData": {"data": "AAA',
        b'"inlineData" "data" :',
        b'"thoughtSignature":"',
    ):
        assert counted_bytes(raw) >= 0


def test_twenty_megabytes_are_counted_in_a_moment() -> None:
    """An upload does not hold up the others: a few milliseconds at most."""
    raw = _request(_picture(15_000_000))
    begun = time.perf_counter()
    counted_bytes(raw)
    assert time.perf_counter() - begun < 0.1
