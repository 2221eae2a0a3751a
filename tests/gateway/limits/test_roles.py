"""Tests of request roles: only fields that the CLI writes decide the role, never conversation
text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.gateway.limits.roles import role_of
from geminids.gateway.request import Request

STREAM, WHOLE = "streamGenerateContent", "generateContent"
CORE = "You are Gemini CLI, an autonomous CLI agent specializing in software engineering tasks."
DISTILLING = (
    "\nYou are a specialized system component responsible for distilling chat history into a structured XML "
    "<state_snapshot>.\n\n### CRITICAL SECURITY RULE"
)
PAGE = (
    "Follow the user's instructions below using the provided webpage content.\n\n<user_instructions>\nread it"
)


def user_contents(*texts: str) -> list[dict[str, Any]]:
    """Build a conversation of alternating messages that starts with the user."""
    return [{"parts": [{"text": text}], "role": ("user", "model")[at % 2]} for at, text in enumerate(texts)]


def with_answer_schema(*names: str, field: str = "responseJsonSchema") -> dict[str, Any]:
    schema = {"type": "OBJECT", "properties": {name: {"type": "STRING"} for name in names}}
    return {"generationConfig": {"temperature": 1, "responseMimeType": "application/json", field: schema}}


def with_instruction(text: str) -> dict[str, Any]:
    return {"systemInstruction": {"parts": [{"text": text}], "role": "user"}}


def with_tools(*names: str) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": [{"name": name, "description": name} for name in names]}]}


def make_request(call: str, body: Any, path: str = "/v1beta/models/gemini-3.8-flash:{}?alt=sse") -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return Request.read(1, 0.0, "POST", path.format(call), {}, raw)


REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "main",
        STREAM,
        {
            "contents": user_contents("hello"),
            **with_instruction(CORE),
            **with_tools("read_file", "invoke_agent"),
        },
    ),
    (
        "subagent",
        STREAM,
        {
            "contents": user_contents("look"),
            **with_instruction(CORE),
            **with_tools("read_file", "complete_task"),
        },
    ),
    (
        "router",
        WHOLE,
        {
            "contents": user_contents("hello"),
            **with_answer_schema("complexity_reasoning", "complexity_score"),
        },
    ),
    (
        "router",
        WHOLE,
        {
            "contents": user_contents("hello"),
            **with_answer_schema("reasoning", "model_choice", field="responseSchema"),
        },
    ),
    (
        "loop_check",
        WHOLE,
        {
            "contents": user_contents("x"),
            **with_answer_schema("unproductive_state_analysis", "unproductive_state_confidence"),
        },
    ),
    (
        "compression",
        WHOLE,
        {
            "contents": user_contents("a", "b", "Generate a new <state_snapshot>"),
            **with_instruction(DISTILLING),
        },
    ),
    (
        "search",
        WHOLE,
        {"contents": user_contents("pears"), **with_instruction(CORE), "tools": [{"googleSearch": {}}]},
    ),
    (
        "fetch",
        WHOLE,
        {"contents": user_contents("read http://a"), **with_instruction(CORE), "tools": [{"urlContext": {}}]},
    ),
    ("fetch", WHOLE, {"contents": user_contents(PAGE), **with_instruction(CORE)}),
    (
        "other",
        WHOLE,
        {
            "contents": user_contents("a", "b", "Analyze *only*"),
            **with_answer_schema("reasoning", "next_speaker"),
        },
    ),
    (
        "other",
        WHOLE,
        {"contents": user_contents("Summarize the following tool output"), **with_instruction(CORE)},
    ),
]


@pytest.mark.parametrize(("role", "call", "body"), REQUESTS)
def test_each_role(role: str, call: str, body: dict[str, Any]) -> None:
    """Each kind of request of the CLI gets its role, with every sign-in."""
    assert role_of(make_request(call, body)) == role
    vertex = "/v1beta1/publishers/google/models/gemini-3.8-flash:{}?alt=sse"
    assert role_of(make_request(call, body, vertex)) == role
    wrapped = {"model": "gemini-3.8-flash", "project": "p", "user_prompt_id": "1", "request": body}
    assert role_of(make_request(call, wrapped, "/v1internal:{}?alt=sse")) == role


WORDS = [
    '"complete_task"',
    "complexity_score",
    "unproductive_state_confidence",
    '{"googleSearch": {}}',
    '{"urlContext": {}}',
    "<state_snapshot> " + DISTILLING,
    PAGE,
]


@pytest.mark.parametrize("word", WORDS)
def test_markers_in_the_text_do_not_change_the_role(word: str) -> None:
    """Words that identify a role do not change it if they occur in texts.
    This holds for prompts, tool results, instructions and descriptions."""
    result = {
        "functionResponse": {"name": "read_file", "response": {"output": word, "name": "complete_task"}}
    }
    body = {
        "contents": [*user_contents("tell me about " + word, word), {"parts": [result], "role": "user"}],
        **with_instruction(f"{CORE} Remember: {word}"),
        "tools": [{"functionDeclarations": [{"name": "read_file", "description": f'"name": {word}'}]}],
    }
    assert role_of(make_request(STREAM, body)) == "main"
    del body["tools"]
    assert role_of(make_request(WHOLE, body)) == "other"
    assert role_of(make_request(WHOLE, {**body, **with_answer_schema("complexity_score")})) == "router"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"complete_task"',
        b"{",
        b"\xff\xfe",
        b'{"tools": "complete_task"}',
        b'{"request": 3}',
    ],
)
def test_role_of_an_unreadable_body(body: bytes) -> None:
    """A body that cannot be read has the role `main` if streamed, else `other`."""
    assert role_of(make_request(STREAM, body)) == "main"
    assert role_of(make_request(WHOLE, body)) == "other"


def test_role_of_a_body_with_a_lone_surrogate() -> None:
    """A body with a lone surrogate, which the CLI sends, has its normal role."""
    body = json.dumps({"contents": user_contents("half \ud83d"), **with_tools("complete_task")}).encode()
    assert b"\\ud83d" in body
    assert role_of(make_request(STREAM, body)) == "subagent"


def test_role_of_count_tokens() -> None:
    """A countTokens request has the role `other`."""
    assert role_of(make_request("countTokens", {"contents": user_contents("hello")})) == "other"
