"""What is read from an answer while it passes."""

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


def observed(data: bytes, kind: str = EVENTS, status: int = 200, piece: int = 1_000_000) -> Observer:
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
def test_a_stream(piece: int, end: str, wrap: bool) -> None:
    """However it is split and wrapped, the whole stream gives final usage, model, reason, and what it consists of."""
    events = [wrapped(event) for event in ANSWER] if wrap else ANSWER
    seen = observed(stream(*events, end=end), piece=piece)
    assert (seen.final, seen.counts) == (True, COUNTS)
    assert (seen.served, seen.finish_reason) == ("gemini-2.5-flash-001", "STOP")
    assert seen.calls == 0


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
    """Usage counts once it comes with or after the finish reason: before that it is the sum so far."""
    for wrap in (False, True):
        seen = observed(stream(*[wrapped(event) for event in events] if wrap else events))
        assert (seen.final, seen.counts) == (final, COUNTS if final else None)


def test_a_cut_in_the_last_event() -> None:
    """Half of the event that has the final usage tells nothing."""
    data = stream(*ANSWER)
    seen = observed(data[: data.rindex(b"usageMetadata") + 40])
    assert (seen.final, seen.counts, seen.finish_reason) == (False, None, None)


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
def test_a_whole_answer(body: Any, counts: Counts | None) -> None:
    """An answer that is no stream is final when it is whole; half of it is nothing."""
    data = json.dumps(body).encode()
    seen = observed(data, "application/json", piece=11)
    assert (seen.counts, seen.final) == (counts, counts is not None)
    assert observed(data[:-1], "application/json").counts is None


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
def test_what_an_answer_consists_of(parts: list[dict[str, Any]], calls: int, thoughts: int) -> None:
    """Calls and thoughts are counted, wherever they stand."""
    for wrap in (False, True):
        events = [response(part) for part in parts] + [response(finish="STOP", usageMetadata=USAGE)]
        seen = observed(stream(*[wrapped(event) for event in events] if wrap else events))
        assert (seen.calls, seen.thoughts) == (calls, thoughts)


def test_a_large_answer_that_is_no_stream() -> None:
    """Its usage stands at the end, and is read."""
    answer = response({"text": "x" * 3_000_000}, finish="STOP", usageMetadata=USAGE)
    assert observed(json.dumps(answer).encode(), "application/json", piece=65_536).counts == COUNTS


def test_an_event_of_several_lines() -> None:
    """The CLI joins the lines of an event that Code Assist sends, and so do we."""
    lines = json.dumps(wrapped(ANSWER[2]), indent=1).splitlines()
    data = "".join(f"data: {line}\n" for line in lines).encode() + b"\n"
    for piece in (1, 50, 10_000):
        assert observed(data, piece=piece).counts == COUNTS


def test_an_error_in_a_stream() -> None:
    """An API that fails in the middle says so in an event."""
    seen = observed(stream(ANSWER[0], {"error": {"code": 503, "message": "overloaded"}}))
    assert (seen.error, seen.final) == ("overloaded", False)


@pytest.mark.parametrize("strange", [{"candidates": [{"content": {"parts": 5}, "finishReason": "STOP"}]}, {}])
def test_strange_parts_cost_no_usage(strange: dict[str, Any]) -> None:
    """A part of an unknown form is passed over; what is known beside it is read."""
    seen = observed(stream({**response(finish="STOP"), **strange, "usageMetadata": USAGE}))
    assert seen.counts == COUNTS


@given(st.binary(max_size=300), st.integers(1, 50))
def test_no_bytes_make_it_fail(data: bytes, piece: int) -> None:
    """Whatever an API sends is the CLI's to judge."""
    for kind in (EVENTS, "application/json"):
        observed(data, kind, piece=piece)
        observed(b"data: " + data, kind, piece=piece)
