"""What is read from a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.gateway import Request
from geminids.gateway.request import Route, read_route

KEY = "a-key-that-must-not-show"


def request(contents: list[dict[str, Any]], **more: Any) -> Request:
    body = json.dumps({"contents": contents, **more}).encode()
    return Request.read(1, 0.0, "POST", "/v1beta/models/m:streamGenerateContent", {}, body)


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


RESULT = {"functionResponse": {"name": "glob", "response": {"output": "a"}}}


@pytest.mark.parametrize(
    ("path", "route"),
    [
        (
            "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse",
            Route("stream", "gemini-3.8-flash"),
        ),
        ("/v1/models/m:generateContent", Route("generate", "m")),
        ("/v1alpha/models/m:countTokens", Route("count", "m")),
        ("/v1beta/models/m:embedContent", Route("embed", "m")),
        ("/v1beta/models/m:predict", Route("other", "m")),
        ("/v1beta/models", Route()),
        ("/", Route()),
        ("", Route()),
    ],
)
def test_routes(path: str, route: Route) -> None:
    """Any version of the API is known; anything else is `other`."""
    assert read_route(path) == route


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ([user("<session_context>…", "hello")], "hello"),
        ([user("<session_context>…"), user("hello")], "hello"),
        ([user("hello"), {"role": "model", "parts": [{"text": "no"}]}, user(RESULT)], "hello"),
        ([user("hello"), user(RESULT, "a reminder of the CLI")], "hello"),
        ([user("see @a", "\n--- Content from referenced files ---", "text of a", "\n--- End ---")], "see @a"),
        ([user(RESULT)], ""),
        ([], ""),
        ([{"parts": [{"text": "no role"}]}], "no role"),
    ],
)
def test_last_user_text(contents: list[dict[str, Any]], text: str) -> None:
    """It is what the user said, without the CLI's context, files and tool results."""
    assert request(contents).last_user_text == text


def test_tool_results() -> None:
    """`tool_results` are the last content's, `turn_results` all since the user spoke."""
    old = {"functionResponse": {"name": "ls", "response": {}}}
    found = request([user(old), user("hello"), user(RESULT), user(old)])
    assert [result["name"] for result in found.tool_results] == ["ls"]
    assert [result["name"] for result in found.turn_results] == ["glob", "ls"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"5", b'{"contents": 5}', b'{"contents": [5, {"parts": 5}]}', b"\xff"]
)
def test_odd_bodies_are_read(body: bytes) -> None:
    """A body of any shape gives a request, with nothing in it."""
    found = Request.read(1, 0.0, "POST", "/", {}, body)
    assert (found.last_user_text, found.tool_results, found.tools, found.config) == ("", [], {}, {})


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        ({"x-goog-api-key": KEY}, "/v1beta/models/m:generateContent"),
        ({"authorization": f"Bearer {KEY}"}, "/v1beta/models/m:generateContent"),
        ({}, f"/v1beta/models/m:generateContent?alt=sse&key={KEY}"),
    ],
    ids=["header", "bearer", "query"],
)
def test_the_key_is_kept_apart(headers: dict[str, str], path: str) -> None:
    """The key is in `key` alone: not in headers, path or repr."""
    found = Request.read(1, 0.0, "POST", path, headers, b"")
    assert found.key == KEY
    assert found.has_key
    assert KEY not in repr(found) + str(found.headers) + found.path


def test_declared_tools() -> None:
    """`tools` gives each declaration by its name."""
    found = request(
        [], tools=[{"functionDeclarations": [{"name": "glob"}, {"name": "ls"}]}, {"googleSearch": {}}]
    )
    assert sorted(found.tools) == ["glob", "ls"]


def test_half_a_character_is_no_reason_to_lose_a_request() -> None:
    """The CLI sends a lone surrogate as it is; the conversation is still there."""
    body = b'{"contents": [{"role": "user", "parts": [{"text": "a\\ud83d"}]}]}'
    request = Request.read(1, 0.0, "POST", "/v1beta/models/m:streamGenerateContent", {}, body)
    assert request.contents[0]["parts"] == [{"text": "a\ud83d"}]
