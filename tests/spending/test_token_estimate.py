"""Tests of estimating the tokens of a request before it is sent."""

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
    """All bytes of a text request are counted."""
    raw = _request({"text": "What is a meteor?"})
    assert counted_bytes(raw) == len(raw)


def test_picture_size_does_not_matter() -> None:
    """Every picture counts about 258 tokens, whatever its size."""
    assert counted_bytes(_request(_picture(3_000))) == counted_bytes(_request(_picture(3_000_000)))
    one_picture, two_pictures = (counted_bytes(_request(*[_picture(3_000)] * n)) for n in (1, 2))
    assert 258 <= (two_pictures - one_picture) / BYTES_PER_TOKEN < 258 + 20


def test_order_of_picture_fields_does_not_matter() -> None:
    """In a picture, `data` may come before `mimeType`."""
    data = base64.b64encode(bytes(30_000)).decode()
    assert counted_bytes(_request({"inlineData": {"data": data, "mimeType": "image/png"}})) < 2_000


def test_thought_signatures_are_not_counted() -> None:
    """The thought signature of a tool call is not counted, and the text after it is."""
    call = {"functionCall": {"name": "ls", "args": {}}, "thoughtSignature": "A" * 40_000}
    raw = _request(call, {"text": "x" * 1_000})
    assert 1_000 < counted_bytes(raw) < 1_300


def test_quoted_picture_is_text() -> None:
    """A text that quotes a request with a picture is counted completely."""
    raw = _request({"text": _request(_picture(3_000)).decode()})
    assert counted_bytes(raw) == len(raw)


def test_incomplete_body_is_counted() -> None:
    """An incomplete or empty body is counted without an error or an endless loop."""
    for raw in (
        b"",
        b'"inlineData"',
        b'{"inlineData": {"data": "AAA',
        b'"inlineData" "data" :',
        b'"thoughtSignature":"',
    ):
        assert counted_bytes(raw) >= 0


def test_counting_is_fast() -> None:
    """Counting a body of 20 MB takes less than 0.1 s, so that other requests do not wait."""
    raw = _request(_picture(15_000_000))
    started = time.perf_counter()
    counted_bytes(raw)
    assert time.perf_counter() - started < 0.1
