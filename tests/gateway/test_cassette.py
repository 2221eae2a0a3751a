"""Cassettes: written, read, and what is wrong with a file."""

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
# Half characters too: the CLI sends them.
_SCALARS |= st.text(st.characters(codec=None, categories=["Cs", "Lu"]), max_size=4)
JSON: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
).map(lambda value: json.loads(json.dumps(value)))  # two halves of a character are one then
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
def test_any_request_survives(bodies: list[Any]) -> None:
    """Whatever a request's body is, it is read as it was written."""
    shelf = CassetteEncoder()
    lines = [line for n, body in enumerate(bodies) for line in shelf.lines(exchange(body, n))]
    assert all(line.count(b"\n") == 1 for line in lines)
    found = read_cassette(HEADER + b"".join(lines))
    assert [one.body for one in found.exchanges] == bodies


@given(JSON, st.text(), st.sampled_from(["whole", "cut", "stalled", "left", "fault"]))
def test_any_answer_survives(value: Any, text: str, end: Any) -> None:
    """Answers too, in each form and with each ending."""
    for answer in (
        RecordedAnswer(events=[value], rest=text, end=end),
        RecordedAnswer(json=value),
        RecordedAnswer(text=text),
        RecordedAnswer(status=429),
    ):
        found = read_cassette(HEADER + b"".join(CassetteEncoder().lines(exchange({}, answer=answer))))
        assert found.exchanges[0].answer == answer


def test_what_requests_repeat_is_written_once() -> None:
    """A conversation grows by what is new in it: 100 requests take no more than their parts and a line each."""
    system = {"parts": [{"text": "s" * 60_000}]}
    contents: list[Any] = []
    shelf, sizes = CassetteEncoder(), []
    for n in range(100):
        contents.append({"role": "user", "parts": [{"text": f"{n} " + "x" * 1000}]})
        body = {
            "contents": list(contents),
            "systemInstruction": system,
            "tools": [{"functionDeclarations": []}],
        }
        sizes.append(sum(map(len, shelf.lines(exchange(body, n)))))
    assert sizes[0] > 60_000
    assert max(sizes[1:]) < 1_600


def test_a_person_can_read_it() -> None:
    """Each line says what it is; what was said stands in its order, before the request that says it."""
    said = {"role": "user", "parts": [{"text": "hi"}]}
    body = {"contents": [said], "systemInstruction": {"parts": []}}
    lines = [json.loads(line) for line in (HEADER, *CassetteEncoder().lines(exchange(body)))]
    assert [line["kind"] for line in lines] == ["cassette", "system", "said", "exchange"]
    header = {"kind": "cassette", "version": 1, "made": None, "cli": "0.61.0", "model": "m", "api": "gemini"}
    assert lines[0] == header
    assert lines[2]["content"] == said
    assert lines[3]["request"]["conversation"] == lines[2]["id"]


def test_requests_stand_in_the_order_in_which_they_came() -> None:
    """Of two that went on at once the later one can end first: numbers tell."""
    shelf = CassetteEncoder()
    lines = [*shelf.lines(exchange("b", 2)), *shelf.lines(exchange("a", 1))]
    assert [one.body for one in read_cassette(HEADER + b"".join(lines)).exchanges] == ["a", "b"]


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
        (HEADER + b'{"kind": "sa\n', "c.jsonl:2: this line is broken"),
        (HEADER + b"\n" + b'{"kind": "other"}\n', "c.jsonl:3: this line is broken"),
        (HEADER + HEADER, "c.jsonl:2: this line is broken: a second header"),
        (
            HEADER
            + b'{"kind":"exchange","n":1,"at":0,"request":{"path":"/","conversation":"x","body":{}},"answer":{}}',
            "c.jsonl:2: this line is broken: no line above it has the id x",
        ),
        (
            HEADER + b'{"kind":"said","id":"x","content":{},"after":"x"}\n'
            b'{"kind":"exchange","n":1,"at":0,"request":{"path":"/","conversation":"x","body":{}},"answer":{}}',
            "the conversation before x has no beginning",
        ),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, data: bytes, message: str) -> None:
    """What is wrong with a file is one error, with the line and what to do."""
    file = tmp_path / "c.jsonl"
    file.write_bytes(data)
    with pytest.raises(GeminidsError) as caught:
        load_cassette(file)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """An absent cassette is said to be absent; a folder is said not to be readable."""
    with pytest.raises(GeminidsError, match="does not exist"):
        load_cassette(tmp_path / "none.jsonl")
    with pytest.raises(GeminidsError, match="cannot be read"):
        load_cassette(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_cassette_or_one_error(data: bytes) -> None:
    """No file makes anything but a `GeminidsError`."""
    for given_ in (data, HEADER + data):
        try:
            read_cassette(given_)
        except GeminidsError:
            pass
