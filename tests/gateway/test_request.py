"""What is read from a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.gateway import Request
from geminids.gateway.request import Route, key_of, read_route

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
        ("/v1beta1/publishers/google/models/m:streamGenerateContent?alt=sse", Route("stream", "m", "vertex")),
        ("/v1/projects/p/locations/l/publishers/q/models/m:countTokens", Route("count", "m", "vertex")),
        ("/v1internal:streamGenerateContent?alt=sse", Route("stream", None, "code_assist")),
        ("/a-token/v1internal:generateContent", Route("generate", None, "code_assist")),
        ("/a-token/v1internal:loadCodeAssist", Route("other", None, "code_assist")),
        ("/a-token/v2:countTokens", Route("count", None, "code_assist")),
        ("/a-token/v1internal/operations/x.1", Route("other", None, "code_assist")),
        ("/a-token/v1internal/projects/p/operations/x", Route("other", None, "code_assist")),
        ("/a/b/v1internal:generateContent", Route()),
        ("/a-token/v1internal/operations/../x", Route()),
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


# Code Assist.

TOKEN = "geminids-run-" + "0123456789abcdef" * 3
LOGIN = "Bearer ya29.not-a-real-token"


def code_assist(call: str, body: Any, token: str = f"/{TOKEN}") -> Request:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"authorization": LOGIN, "x-goog-api-key": "of-no-use"}
    return Request.read(1, 0.0, "POST", f"{token}/v1internal{call}", headers, data)


def wrapped(**fields: Any) -> dict[str, Any]:
    return {"model": "gemini-3.8-flash", "project": "p", "user_prompt_id": "u", "request": fields}


def test_a_wrapped_request() -> None:
    """What Code Assist wraps is read as if it was not."""
    fields = {
        "contents": [user("hello"), user(RESULT)],
        "tools": [{"functionDeclarations": [{"name": "glob"}]}],
        "generationConfig": {"topK": 5},
        "session_id": "s",
    }
    found = code_assist(":streamGenerateContent?alt=sse", wrapped(**fields))
    assert (found.api, found.method, found.model) == ("code_assist", "stream", "gemini-3.8-flash")
    assert (found.last_user_text, list(found.tools), found.config) == ("hello", ["glob"], {"topK": 5})
    assert [result["name"] for result in found.tool_results] == ["glob"]
    assert found.payload == fields


def test_the_token_is_in_the_path() -> None:
    """The first segment is the token: it is in `key` alone. The login is in `authorization` alone."""
    found = code_assist(":loadCodeAssist", {})
    assert (found.key, found.authorization, found.path) == (TOKEN, LOGIN, "/v1internal:loadCodeAssist")
    assert TOKEN not in repr(found) + str(found.headers)
    assert "ya29" not in repr(found) + str(found.headers)


def test_a_login_is_not_a_token() -> None:
    """Without the segment there is no token, whatever the headers and the query bring."""
    found = code_assist(":loadCodeAssist?key=in-the-query", {}, token="")
    assert (found.key, found.path) == (None, "/v1internal:loadCodeAssist?key=***")
    assert key_of("/v1internal:loadCodeAssist", {"authorization": "Bearer t", "x-goog-api-key": "t"}) is None
    assert key_of(f"/{TOKEN}/v1internal:loadCodeAssist?a=b", {}) == TOKEN


def test_a_token_at_any_other_place_is_not_shown() -> None:
    """A token in a path that nobody knows is masked too."""
    found = Request.read(1, 0.0, "GET", f"/x/{TOKEN}/y", {}, b"")
    assert found.path == "/x/***/y"


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (wrapped(), "gemini-3.8-flash"),
        (b'{"model": "first", "request": {}, "model": "second"}', "second"),
        (b'{"request": {"contents": [{"parts": [{"text": "a\\ud83d"}]}]}, "model": "m"}', "m"),
        ({"request": {"model": "models/counted", "contents": []}}, "counted"),
        ({"model": 5}, None),
        ({}, None),
        (b"{", None),
        (b"", None),
    ],
)
def test_the_model_in_the_body(body: Any, model: str | None) -> None:
    """It is what the API takes: the last of several, also in a body with half a character."""
    assert code_assist(":generateContent", body).model == model


@pytest.mark.parametrize(
    ("verb", "path", "paid"),
    [
        ("POST", "/v1beta/models/m:streamGenerateContent", True),
        ("POST", "/v1beta/models/m:predict", True),
        ("POST", "/v1beta/models/m:countTokens", False),
        ("GET", "/v1beta/models", False),
        ("POST", "/upload/v1beta/files", False),
        ("POST", "/v1beta1/publishers/google/models/m:generateContent", True),
        ("POST", "/v1beta1/publishers/google/models/m:countTokens", False),
        ("POST", "/t/v1internal:streamGenerateContent", True),
        ("POST", "/t/v1internal:generateContent", True),
        ("POST", "/t/v1internal:countTokens", False),
        ("POST", "/t/v1internal:loadCodeAssist", False),
        ("POST", "/t/v1internal:onboardUser", False),
        ("POST", "/t/v1internal:retrieveUserQuota", False),
        ("GET", "/t/v1internal/operations/x", False),
    ],
)
def test_what_is_paid(verb: str, path: str, paid: bool) -> None:
    """What a model computes is paid, in all three forms; sign-in, quota, files and counting are not."""
    assert Request.read(1, 0.0, verb, path, {}, b"{}").is_paid is paid


@pytest.mark.parametrize(("headers", "nested"), [({"x-geminids-nested": "1"}, True), ({}, False)])
def test_nested(headers: dict[str, str], nested: bool) -> None:
    """The header that an inner gateway adds says that a run is inside a run."""
    assert Request.read(1, 0.0, "POST", "/v1beta/models/m:generateContent", headers, b"").is_nested is nested
