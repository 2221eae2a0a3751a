"""Tests of the `Observer`, which reads token counts and more from an answer while it is
forwarded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.gateway.forward.response_observer import Observer
from geminids.spending.tokens import Counts

EVENTS = "text/event-stream; charset=utf-8"
USAGE = {
    "promptTokenCount": 10,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 2,
    "cachedContentTokenCount": 4,
}
COUNTS = Counts(input=10, output=5, thinking=2, cached=4, tool=0)


def response(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **fields}


def wrapped(value: dict[str, Any]) -> dict[str, Any]:
    return {"response": value, "traceId": "t", "remainingCredits": []}


def stream(*events: dict[str, Any], end: str = "\r\n\r\n") -> bytes:
    return "".join(f"data: {json.dumps(event)}{end}" for event in events).encode()


def observe(data: bytes, kind: str = EVENTS, status: int = 200, piece: int = 1_000_000) -> Observer:
    observer = Observer(status, kind)
    for at in range(0, len(data), piece):
        observer.feed(data[at : at + piece])
    observer.finish()
    return observer


ANSWER = [
    response({"text": "a thought", "thought": True}, usageMetadata={"promptTokenCount": 10}),
    response({"text": "one"}, modelVersion="gemini-2.5-flash-001", usageMetadata={"promptTokenCount": 10}),
    response({"text": "two"}, finish="STOP", usageMetadata=USAGE, modelVersion="gemini-2.5-flash-001"),
]


@pytest.mark.parametrize("wrap", [False, True], ids=["plain", "wrapped"])
@pytest.mark.parametrize("end", ["\r\n\r\n", "\n\n"])
@pytest.mark.parametrize("piece", [1, 7, 100, 10_000])
def test_stream_in_any_pieces(piece: int, end: str, wrap: bool) -> None:
    """The observer reads the counts, model and finish reason of a stream, however it is split.
    Code Assist's wrapper makes no difference."""
    events = [wrapped(event) for event in ANSWER] if wrap else ANSWER
    observer = observe(stream(*events, end=end), piece=piece)
    assert (observer.final, observer.counts) == (True, COUNTS)
    assert (observer.served, observer.finish_reason) == ("gemini-2.5-flash-001", "STOP")
    assert observer.calls == 0


@pytest.mark.parametrize(
    ("events", "final"),
    [
        (ANSWER, True),
        (ANSWER[:2], False),
        ([response({"text": "a"}, finish="STOP")], False),
        ([response({"text": "a"}, finish="STOP"), {"usageMetadata": USAGE}], True),
        ([{"usageMetadata": USAGE}, response({"text": "a"}, finish="STOP")], False),
        ([response(finish="MAX_TOKENS", usageMetadata=USAGE)], True),
        ([{"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE}], True),
        ([], False),
    ],
    ids=["whole", "cut", "no usage", "usage behind", "usage before", "max tokens", "blocked", "nothing"],
)
def test_final_usage(events: list[dict[str, Any]], final: bool) -> None:
    """Token counts are final only if they come with or after the finish reason."""
    for wrap in (False, True):
        observer = observe(stream(*[wrapped(event) for event in events] if wrap else events))
        assert (observer.final, observer.counts) == (final, COUNTS if final else None)


def test_cut_in_the_last_event() -> None:
    """If the last event is cut off, its token counts and finish reason are unknown."""
    data = stream(*ANSWER)
    observer = observe(data[: data.rindex(b"usageMetadata") + 40])
    assert (observer.final, observer.counts, observer.finish_reason) == (False, None, None)


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        (response({"text": "a"}, finish="STOP", usageMetadata=USAGE), COUNTS),
        (wrapped(response({"text": "a"}, finish="STOP", usageMetadata=USAGE)), COUNTS),
        (response({"text": "a"}, usageMetadata=USAGE), COUNTS),
        (response({"text": "a"}, finish="STOP"), None),
        ([response({"text": "a"}), response(finish="STOP", usageMetadata=USAGE)], COUNTS),
        ([response({"text": "a"}, usageMetadata=USAGE)], None),
        ({"totalTokens": 5}, None),
    ],
    ids=["plain", "wrapped", "no reason", "no usage", "array", "array without a reason", "count"],
)
def test_answer_without_streaming(body: Any, counts: Counts | None) -> None:
    """A JSON answer has final token counts only if it is complete."""
    data = json.dumps(body).encode()
    observer = observe(data, "application/json", piece=11)
    assert (observer.counts, observer.final) == (counts, counts is not None)
    assert observe(data[:-1], "application/json").counts is None


@pytest.mark.parametrize(
    ("parts", "calls", "thoughts"),
    [
        ([{"text": "a"}], 0, 0),
        ([{"text": "a", "thought": True}], 0, 1),
        ([{"text": "", "thought": True}], 0, 0),
        ([{"text": "a"}, {"text": "b", "thought": True}, {"text": "c", "thought": True}], 0, 2),
        ([{"functionCall": {"name": "glob", "args": {"text": "a"}}}], 1, 0),
        ([{"text": "a", "thought": True}, {"text": "b"}, {"functionCall": {"name": "glob"}}], 1, 1),
        ([{"functionCall": {"name": "glob"}}, {"functionCall": {"name": "glob"}}], 2, 0),
        ([], 0, 0),
    ],
)
def test_calls_and_thoughts_are_counted(parts: list[dict[str, Any]], calls: int, thoughts: int) -> None:
    """The observer counts calls and thoughts, wherever they occur in the answer."""
    for wrap in (False, True):
        events = [response(part) for part in parts] + [response(finish="STOP", usageMetadata=USAGE)]
        observer = observe(stream(*[wrapped(event) for event in events] if wrap else events))
        assert (observer.calls, observer.thoughts) == (calls, thoughts)


def test_large_answer_without_streaming() -> None:
    """Token counts at the end of a JSON answer of 3 MB are read."""
    answer = response({"text": "x" * 3_000_000}, finish="STOP", usageMetadata=USAGE)
    assert observe(json.dumps(answer).encode(), "application/json", piece=65_536).counts == COUNTS


def test_event_of_several_lines() -> None:
    """An event may have several `data:` lines, as Code Assist sends it."""
    lines = json.dumps(wrapped(ANSWER[2]), indent=1).splitlines()
    data = "".join(f"data: {line}\n" for line in lines).encode() + b"\n"
    for piece in (1, 50, 10_000):
        assert observe(data, piece=piece).counts == COUNTS


def test_error_in_a_stream() -> None:
    """If a stream contains an error event, `error` has its message and the counts are not final."""
    observer = observe(stream(ANSWER[0], {"error": {"code": 503, "message": "overloaded"}}))
    assert (observer.error, observer.final) == ("overloaded", False)


@pytest.mark.parametrize("strange", [{"candidates": [{"content": {"parts": 5}, "finishReason": "STOP"}]}, {}])
def test_parts_of_unknown_form(strange: dict[str, Any]) -> None:
    """Parts of an unknown form are ignored, and the token counts beside them are read."""
    observer = observe(stream({**response(finish="STOP"), **strange, "usageMetadata": USAGE}))
    assert observer.counts == COUNTS


@given(st.binary(max_size=300), st.integers(1, 50))
def test_any_bytes_are_accepted(data: bytes, piece: int) -> None:
    """The observer raises no error, whatever bytes the API sends."""
    for kind in (EVENTS, "application/json"):
        observe(data, kind, piece=piece)
        observe(b"data: " + data, kind, piece=piece)
