"""Tests of reading requests: route, prompt, tools, model and token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.gateway import Request
from geminids.gateway.request import RequestRoute, key_of, read_route

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
            RequestRoute("stream", "gemini-3.8-flash"),
        ),
        ("/v1/models/m:generateContent", RequestRoute("generate", "m")),
        ("/v1alpha/models/m:countTokens", RequestRoute("count", "m")),
        ("/v1beta/models/m:embedContent", RequestRoute("embed", "m")),
        ("/v1beta/models/m:predict", RequestRoute("other", "m")),
        (
            "/v1beta1/publishers/google/models/m:streamGenerateContent?alt=sse",
            RequestRoute("stream", "m", "vertex"),
        ),
        (
            "/v1/projects/p/locations/l/publishers/q/models/m:countTokens",
            RequestRoute("count", "m", "vertex"),
        ),
        ("/v1internal:streamGenerateContent?alt=sse", RequestRoute("stream", None, "code_assist")),
        ("/a-token/v1internal:generateContent", RequestRoute("generate", None, "code_assist")),
        ("/a-token/v1internal:loadCodeAssist", RequestRoute("other", None, "code_assist")),
        ("/a-token/v2:countTokens", RequestRoute("count", None, "code_assist")),
        ("/a-token/v1internal/operations/x.1", RequestRoute("other", None, "code_assist")),
        ("/a-token/v1internal/projects/p/operations/x", RequestRoute("other", None, "code_assist")),
        ("/a/b/v1internal:generateContent", RequestRoute()),
        ("/a-token/v1internal/operations/../x", RequestRoute()),
        ("/v1beta/models", RequestRoute()),
        ("/", RequestRoute()),
        ("", RequestRoute()),
    ],
)
def test_routes(path: str, route: RequestRoute) -> None:
    """A path of any API version is recognized; every other path has the method `other`."""
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
    """`last_user_text` is the user's own text, without the CLI's context,
    files and tool results."""
    assert request(contents).last_user_text == text


def test_tool_results() -> None:
    """`tool_results` has those of the last message, `turn_results` all since the last prompt."""
    old = {"functionResponse": {"name": "ls", "response": {}}}
    parsed = request([user(old), user("hello"), user(RESULT), user(old)])
    assert [result["name"] for result in parsed.tool_results] == ["ls"]
    assert [result["name"] for result in parsed.turn_results] == ["glob", "ls"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"5", b'{"contents": 5}', b'{"contents": [5, {"parts": 5}]}', b"\xff"]
)
def test_invalid_body_is_an_empty_request(body: bytes) -> None:
    """A body of any shape is read without an error, as a request without content."""
    parsed = Request.read(1, 0.0, "POST", "/", {}, body)
    assert (parsed.last_user_text, parsed.tool_results, parsed.tools, parsed.config) == ("", [], {}, {})


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        ({"x-goog-api-key": KEY}, "/v1beta/models/m:generateContent"),
        ({"authorization": f"Bearer {KEY}"}, "/v1beta/models/m:generateContent"),
        ({}, f"/v1beta/models/m:generateContent?alt=sse&key={KEY}"),
    ],
    ids=["header", "bearer", "query"],
)
def test_key_is_only_in_its_field(headers: dict[str, str], path: str) -> None:
    """The key is only in `Request.key`, not in the headers, the path or the repr."""
    parsed = Request.read(1, 0.0, "POST", path, headers, b"")
    assert parsed.key == KEY
    assert KEY not in repr(parsed) + str(parsed.headers) + parsed.path


def test_declared_tools() -> None:
    """`tools` maps the name of each declared function to its declaration."""
    parsed = request(
        [], tools=[{"functionDeclarations": [{"name": "glob"}, {"name": "ls"}]}, {"googleSearch": {}}]
    )
    assert sorted(parsed.tools) == ["glob", "ls"]


def test_body_with_a_lone_surrogate() -> None:
    """A body with a lone surrogate, which the CLI sends, is read completely."""
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


def test_code_assist_request_is_unwrapped() -> None:
    """A Code Assist request has the same fields as a plain one: the wrapper is removed."""
    fields = {
        "contents": [user("hello"), user(RESULT)],
        "tools": [{"functionDeclarations": [{"name": "glob"}]}],
        "generationConfig": {"topK": 5},
        "session_id": "s",
    }
    parsed = code_assist(":streamGenerateContent?alt=sse", wrapped(**fields))
    assert (parsed.api, parsed.method, parsed.model) == ("code_assist", "stream", "gemini-3.8-flash")
    assert (parsed.last_user_text, list(parsed.tools), parsed.config) == ("hello", ["glob"], {"topK": 5})
    assert [result["name"] for result in parsed.tool_results] == ["glob"]
    assert parsed.payload == fields


def test_code_assist_token_is_in_the_path() -> None:
    """With Code Assist, the first path segment is the token. It is only in `key`.
    The login is only in `authorization`."""
    parsed = code_assist(":loadCodeAssist", {})
    assert (parsed.key, parsed.authorization, parsed.path) == (TOKEN, LOGIN, "/v1internal:loadCodeAssist")
    assert TOKEN not in repr(parsed) + str(parsed.headers)
    assert "ya29" not in repr(parsed) + str(parsed.headers)


def test_code_assist_login_is_not_a_token() -> None:
    """With Code Assist, a token in a header or in the query is ignored."""
    parsed = code_assist(":loadCodeAssist?key=in-the-query", {}, token="")
    assert (parsed.key, parsed.path) == (None, "/v1internal:loadCodeAssist?key=***")
    assert key_of("/v1internal:loadCodeAssist", {"authorization": "Bearer t", "x-goog-api-key": "t"}) is None
    assert key_of(f"/{TOKEN}/v1internal:loadCodeAssist?a=b", {}) == TOKEN


def test_token_in_an_unknown_path_is_masked() -> None:
    """A token inside a path that the gateway does not know is masked."""
    parsed = Request.read(1, 0.0, "GET", f"/x/{TOKEN}/y", {}, b"")
    assert parsed.path == "/x/***/y"


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
def test_code_assist_model_is_in_the_body(body: Any, model: str | None) -> None:
    """With Code Assist, the model is read from the body.
    The last `model` key counts, as in the API."""
    assert code_assist(":generateContent", body).model == model


@pytest.mark.parametrize(
    ("verb", "path", "is_paid"),
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
def test_paid_paths(verb: str, path: str, is_paid: bool) -> None:
    """Paths on which a model computes are paid. Sign-in, quota, files and token counts are free."""
    assert Request.read(1, 0.0, verb, path, {}, b"{}").is_paid is is_paid


@pytest.mark.parametrize(("headers", "is_nested"), [({"x-geminids-nested": "1"}, True), ({}, False)])
def test_nested_header(headers: dict[str, str], is_nested: bool) -> None:
    """A request with the header `x-geminids-nested` belongs to a nested run."""
    assert (
        Request.read(1, 0.0, "POST", "/v1beta/models/m:generateContent", headers, b"").is_nested is is_nested
    )
