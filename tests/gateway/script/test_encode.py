"""Tests of encoding replies in the format of the Gemini API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.gateway import Call, Reply, ReplyUsage, Request
from geminids.gateway.script.encode import kind_of, parts_of, responses_of
from geminids.gateway.upstream import Body, Cut, Hang, Head, Part, Wait


def request(method: str = "streamGenerateContent") -> Request:
    body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}).encode()
    return Request.read(1, 0.0, "POST", f"/v1beta/models/m:{method}?alt=sse", {}, body)


def body_bytes(parts: list[Part]) -> bytes:
    return b"".join(part.data for part in parts if isinstance(part, Body))


def test_order_of_chunks() -> None:
    """Thoughts come first, then texts, then calls.
    Only the last chunk has `finishReason` and `usageMetadata`."""
    reply = Reply(thought="**A**\nb", text=["x", "y"], calls=[Call("glob", {"pattern": "*"})])
    responses = responses_of(reply, request())
    parts = [response["candidates"][0]["content"]["parts"] for response in responses]
    assert parts == [
        [{"text": "**A**\nb", "thought": True}],
        [{"text": "x"}],
        [{"text": "y"}],
        [{"functionCall": {"name": "glob", "args": {"pattern": "*"}}}],
    ]
    finish_reasons = [response["candidates"][0].get("finishReason") for response in responses]
    assert finish_reasons == [None, None, None, "STOP"]
    assert ["usageMetadata" in response for response in responses] == [False, False, False, True]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            ReplyUsage(input=100, output=20, thinking=5, tool=3, cached=40),
            {
                "promptTokenCount": 100,
                "candidatesTokenCount": 20,
                "totalTokenCount": 128,
                "cachedContentTokenCount": 40,
                "thoughtsTokenCount": 5,
                "toolUsePromptTokenCount": 3,
            },
        ),
        (
            ReplyUsage(input=1, output=2, total=50),
            {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 50},
        ),
    ],
)
def test_usage(usage: ReplyUsage, expected: dict[str, int]) -> None:
    """The total is the sum of all counts unless the script sets it. Zero counts are not sent."""
    assert responses_of(Reply(text="hi", usage=usage), request())[0]["usageMetadata"] == expected


def test_default_usage_is_estimated() -> None:
    """Without usage in the script, the token counts are estimated, and the total is their sum."""
    usage = responses_of(Reply(text="hello there", thought="hm"), request())[-1]["usageMetadata"]
    assert usage["totalTokenCount"] == sum(
        usage[name] for name in ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    )
    assert usage["promptTokenCount"] > 0


def test_error_format() -> None:
    """An error has code, message, status and details, as Google writes it, and a content length."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}]
    parts = list(parts_of(Reply(status=429, error="slow down", details=details), request()))
    error = {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED", "details": details}
    assert json.loads(body_bytes(parts)) == {"error": error}
    assert isinstance(parts[0], Head)
    assert parts[0].headers["content-length"] == str(len(body_bytes(parts)))


@pytest.mark.parametrize(
    ("reply", "first"),
    [
        (
            Reply(empty=True),
            {"candidates": [{"content": {"role": "model"}, "index": 0, "finishReason": "STOP"}]},
        ),
        (Reply(blocked="SAFETY"), {"promptFeedback": {"blockReason": "SAFETY"}}),
        (Reply(raw=[{"anything": 1}]), {"anything": 1}),
    ],
    ids=["empty", "blocked", "raw"],
)
def test_empty_blocked_and_raw_replies(reply: Reply, first: dict[str, Any]) -> None:
    """Empty and blocked replies are encoded as Google writes them, and raw replies unchanged."""
    response = responses_of(reply, request())[0]
    assert {name: response[name] for name in first} == first


def test_delay_and_pause() -> None:
    """`delay` comes before the response head and `pause` between the chunks."""
    parts = list(parts_of(Reply(text=["a", "b"], delay=2, pause=1), request()))
    assert [type(part) for part in parts] == [Wait, Head, Body, Wait, Body]


@pytest.mark.parametrize(
    ("reply", "end"), [(Reply(text="a", stall=True), Hang), (Reply(text="a", cut=True), Cut)]
)
def test_unfinished_answers_have_no_finish_reason(reply: Reply, end: type[Part]) -> None:
    """A stalled or cut answer has no `finishReason`."""
    parts = list(parts_of(reply, request()))
    assert isinstance(parts[-1], end)
    assert b"finishReason" not in body_bytes(parts)


def test_generate_content_is_one_object() -> None:
    """For generateContent, all chunks are merged into one JSON object."""
    parts = list(parts_of(Reply(thought="t", text=["a", "b"]), request("generateContent")))
    candidate = json.loads(body_bytes(parts))["candidates"][0]
    assert [part["text"] for part in candidate["content"]["parts"]] == ["t", "a", "b"]
    assert candidate["finishReason"] == "STOP"


def test_kind_of_a_reply() -> None:
    """`kind_of` describes a reply in a word or two, for the log."""
    replies = [Reply(text="a", calls=[Call("glob")]), Reply(status=503), Reply(cut=True), Reply()]
    assert [kind_of(reply) for reply in replies] == ["text, call glob", "error 503", "cut", "empty"]
