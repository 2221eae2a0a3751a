"""Replies as the Gemini API writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.gateway import Call, Reply, Request, Usage
from geminids.gateway.script.encode import kind_of, parts_of, responses_of
from geminids.gateway.upstream import Body, Cut, Head, Part, Stall, Wait


def request(method: str = "streamGenerateContent") -> Request:
    body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}).encode()
    return Request.read(1, 0.0, "POST", f"/v1beta/models/m:{method}?alt=sse", {}, body)


def sent(parts: list[Part]) -> bytes:
    return b"".join(part.data for part in parts if isinstance(part, Body))


def test_chunks_come_in_order_and_the_last_one_ends() -> None:
    """Thoughts, then texts, then calls; only the last chunk has finishReason and usage."""
    reply = Reply(thought="**A**\nb", text=["x", "y"], calls=[Call("glob", {"pattern": "*"})])
    found = responses_of(reply, request())
    parts = [response["candidates"][0]["content"]["parts"] for response in found]
    assert parts == [
        [{"text": "**A**\nb", "thought": True}],
        [{"text": "x"}],
        [{"text": "y"}],
        [{"functionCall": {"name": "glob", "args": {"pattern": "*"}}}],
    ]
    ended = [response["candidates"][0].get("finishReason") for response in found]
    assert ended == [None, None, None, "STOP"]
    assert ["usageMetadata" in response for response in found] == [False, False, False, True]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            Usage(input=100, output=20, thinking=5, tool=3, cached=40),
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
            Usage(input=1, output=2, total=50),
            {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 50},
        ),
    ],
)
def test_usage(usage: Usage, expected: dict[str, int]) -> None:
    """The total is the sum unless it is given; what is not known is not sent."""
    assert responses_of(Reply(text="hi", usage=usage), request())[0]["usageMetadata"] == expected


def test_usage_by_default_is_sensible() -> None:
    """Without usage the counts are estimated, and they add up."""
    found = responses_of(Reply(text="hello there", thought="hm"), request())[-1]["usageMetadata"]
    assert found["totalTokenCount"] == sum(
        found[name] for name in ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    )
    assert found["promptTokenCount"] > 0


def test_error_is_googles() -> None:
    """An error has code, message, status and details, and its length is known."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}]
    parts = list(parts_of(Reply(status=429, error="slow down", details=details), request()))
    error = {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED", "details": details}
    assert json.loads(sent(parts)) == {"error": error}
    assert isinstance(parts[0], Head)
    assert parts[0].headers["content-length"] == str(len(sent(parts)))


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
def test_odd_answers(reply: Reply, first: dict[str, Any]) -> None:
    """Empty, blocked and raw answers are sent as Google, or the script, writes them."""
    found = responses_of(reply, request())[0]
    assert {name: found[name] for name in first} == first


def test_times_of_sending() -> None:
    """`delay` is before the head, `pause` between the chunks."""
    parts = list(parts_of(Reply(text=["a", "b"], delay=2, pause=1), request()))
    assert [type(part) for part in parts] == [Wait, Head, Body, Wait, Body]


@pytest.mark.parametrize(
    ("reply", "end"), [(Reply(text="a", stall=True), Stall), (Reply(text="a", cut=True), Cut)]
)
def test_unfinished_answers_have_no_end(reply: Reply, end: type[Part]) -> None:
    """A stalled or cut answer never says that it is finished."""
    parts = list(parts_of(reply, request()))
    assert isinstance(parts[-1], end)
    assert b"finishReason" not in sent(parts)


def test_generate_gives_one_object() -> None:
    """generateContent merges all chunks into one JSON object."""
    parts = list(parts_of(Reply(thought="t", text=["a", "b"]), request("generateContent")))
    found = json.loads(sent(parts))["candidates"][0]
    assert [part["text"] for part in found["content"]["parts"]] == ["t", "a", "b"]
    assert found["finishReason"] == "STOP"


def test_kind_of_a_reply() -> None:
    """A reply is named in a word or two, for people."""
    replies = [Reply(text="a", calls=[Call("glob")]), Reply(status=503), Reply(cut=True), Reply()]
    assert [kind_of(reply) for reply in replies] == ["text, call glob", "error 503", "cut", "empty"]
