"""Tests of writing and reading cassettes, and of the errors for broken files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.errors import GeminidsError
from geminids.gateway.cassette.cassette import load_cassette, read_cassette
from geminids.gateway.cassette.lines import CassetteEncoder, CassetteHeader, Exchange, RecordedAnswer, to_line

HEADER = to_line(CassetteHeader(cli="0.61.0", model="m"))
_SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6) | st.text()
# Lone surrogates too: the CLI sends them.
_SCALARS |= st.text(st.characters(codec=None, categories=["Cs", "Lu"]), max_size=4)
JSON: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
).map(lambda value: json.loads(json.dumps(value)))  # joins a pair of surrogates
BODIES = (
    JSON
    | st.binary()
    | st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("contents", "systemInstruction", "tools", "generationConfig"), JSON)
    )
)


def exchange(body: Any, n: int = 1, answer: RecordedAnswer | None = None) -> Exchange:
    return Exchange(
        n=n,
        at=1.5,
        verb="POST",
        path="/v1beta/models/m:generateContent",
        body=body,
        answer=answer or RecordedAnswer(),
    )


@given(st.lists(BODIES, max_size=4))
def test_any_request_body_is_read_back(bodies: list[Any]) -> None:
    """A request body of any content is read from the cassette as it was written."""
    encoder = CassetteEncoder()
    lines = [line for n, body in enumerate(bodies) for line in encoder.lines(exchange(body, n))]
    assert all(line.count(b"\n") == 1 for line in lines)
    cassette = read_cassette(HEADER + b"".join(lines))
    assert [exchange.body for exchange in cassette.exchanges] == bodies


@given(JSON, st.text(), st.sampled_from(["whole", "cut", "stalled", "left", "fault"]))
def test_any_answer_is_read_back(value: Any, text: str, end: Any) -> None:
    """An answer of any form and with any ending is read from the cassette as it was written."""
    for answer in (
        RecordedAnswer(events=[value], rest=text, end=end),
        RecordedAnswer(json=value),
        RecordedAnswer(text=text),
        RecordedAnswer(status=429),
    ):
        cassette = read_cassette(HEADER + b"".join(CassetteEncoder().lines(exchange({}, answer=answer))))
        assert cassette.exchanges[0].answer == answer


def test_repeated_content_is_written_once() -> None:
    """Content that earlier requests contained is not written again.
    In a growing conversation, each request adds only its new message and one line."""
    system = {"parts": [{"text": "s" * 60_000}]}
    contents: list[Any] = []
    encoder, sizes = CassetteEncoder(), []
    for n in range(100):
        contents.append({"role": "user", "parts": [{"text": f"{n} " + "x" * 1000}]})
        body = {
            "contents": list(contents),
            "systemInstruction": system,
            "tools": [{"functionDeclarations": []}],
        }
        sizes.append(sum(map(len, encoder.lines(exchange(body, n)))))
    assert sizes[0] > 60_000
    assert max(sizes[1:]) < 1_600


def test_lines_of_a_cassette() -> None:
    """Each line of a cassette names its kind. Messages precede the request that contains them."""
    content = {"role": "user", "parts": [{"text": "hi"}]}
    body = {"contents": [content], "systemInstruction": {"parts": []}}
    lines = [json.loads(line) for line in (HEADER, *CassetteEncoder().lines(exchange(body)))]
    assert [line["kind"] for line in lines] == ["cassette", "system", "content", "exchange"]
    header = {"kind": "cassette", "version": 1, "made": None, "cli": "0.61.0", "model": "m", "api": "gemini"}
    assert lines[0] == header
    assert lines[2]["content"] == content
    assert lines[3]["request"]["conversation"] == lines[2]["id"]


def test_exchanges_are_sorted_by_number() -> None:
    """Exchanges are sorted by request number, because a later request may end first."""
    encoder = CassetteEncoder()
    lines = [*encoder.lines(exchange("b", 2)), *encoder.lines(exchange("a", 1))]
    assert [exchange.body for exchange in read_cassette(HEADER + b"".join(lines)).exchanges] == ["a", "b"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (b"hello\n", "its first line has no cassette header"),
        (b'{"kind": "exchange"}\n', "its first line has no cassette header"),
        (
            b'{"kind": "cassette", "version": 2}\n',
            "is a cassette of version 2, but this geminids reads only up to version 1",
        ),
        (HEADER + b'{"kind": "sa\n', "c.jsonl:2: this line is not valid"),
        (HEADER + b"\n" + b'{"kind": "other"}\n', "c.jsonl:3: this line is not valid"),
        (HEADER + HEADER, "c.jsonl:2: this line is not valid: the cassette already has a header"),
        (
            HEADER
            + b'{"kind":"exchange","n":1,"at":0,"request":{"path":"/","conversation":"x","body":{}},"answer":{}}',
            "c.jsonl:2: this line is not valid: it refers to the id x, but no earlier line has this id",
        ),
        (
            HEADER + b'{"kind":"content","id":"x","content":{},"after":"x"}\n'
            b'{"kind":"exchange","n":1,"at":0,"request":{"path":"/","conversation":"x","body":{}},"answer":{}}',
            "the messages before x refer to each other in a circle",
        ),
    ],
)
def test_broken_cassette_is_one_error(tmp_path: Path, data: bytes, message: str) -> None:
    """A broken cassette raises one error with a hint. A broken line is named by its number."""
    file = tmp_path / "c.jsonl"
    file.write_bytes(data)
    with pytest.raises(GeminidsError) as caught:
        load_cassette(file)
    assert message in caught.value.message
    assert caught.value.hint


def test_missing_or_unreadable_cassette(tmp_path: Path) -> None:
    """A missing cassette is reported as missing, and a folder as unreadable."""
    with pytest.raises(GeminidsError, match="does not exist"):
        load_cassette(tmp_path / "none.jsonl")
    with pytest.raises(GeminidsError, match="cannot be read"):
        load_cassette(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_raise_only_a_geminids_error(data: bytes) -> None:
    """Reading any bytes as a cassette raises nothing but a `GeminidsError`."""
    for content in (data, HEADER + data):
        try:
            read_cassette(content)
        except GeminidsError:
            pass
