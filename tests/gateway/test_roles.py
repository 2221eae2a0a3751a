"""The role of a request is read from the fields that the CLI writes, and from nothing that anybody says."""

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


def said(*texts: str) -> list[dict[str, Any]]:
    """A conversation: the user begins."""
    return [{"parts": [{"text": text}], "role": ("user", "model")[at % 2]} for at, text in enumerate(texts)]


def wanting(*names: str, field: str = "responseJsonSchema") -> dict[str, Any]:
    schema = {"type": "OBJECT", "properties": {name: {"type": "STRING"} for name in names}}
    return {"generationConfig": {"temperature": 1, "responseMimeType": "application/json", field: schema}}


def instructed(text: str) -> dict[str, Any]:
    return {"systemInstruction": {"parts": [{"text": text}], "role": "user"}}


def tools(*names: str) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": [{"name": name, "description": name} for name in names]}]}


def ask(call: str, body: Any, path: str = "/v1beta/models/gemini-3.8-flash:{}?alt=sse") -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return Request.read(1, 0.0, "POST", path.format(call), {}, raw)


REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("main", STREAM, {"contents": said("hello"), **instructed(CORE), **tools("read_file", "invoke_agent")}),
    (
        "subagent",
        STREAM,
        {"contents": said("look"), **instructed(CORE), **tools("read_file", "complete_task")},
    ),
    ("router", WHOLE, {"contents": said("hello"), **wanting("complexity_reasoning", "complexity_score")}),
    (
        "router",
        WHOLE,
        {"contents": said("hello"), **wanting("reasoning", "model_choice", field="responseSchema")},
    ),
    (
        "loop_check",
        WHOLE,
        {"contents": said("x"), **wanting("unproductive_state_analysis", "unproductive_state_confidence")},
    ),
    (
        "compression",
        WHOLE,
        {"contents": said("a", "b", "Generate a new <state_snapshot>"), **instructed(DISTILLING)},
    ),
    ("search", WHOLE, {"contents": said("pears"), **instructed(CORE), "tools": [{"googleSearch": {}}]}),
    ("fetch", WHOLE, {"contents": said("read http://a"), **instructed(CORE), "tools": [{"urlContext": {}}]}),
    ("fetch", WHOLE, {"contents": said(PAGE), **instructed(CORE)}),
    ("other", WHOLE, {"contents": said("a", "b", "Analyze *only*"), **wanting("reasoning", "next_speaker")}),
    ("other", WHOLE, {"contents": said("Summarize the following tool output"), **instructed(CORE)}),
]


@pytest.mark.parametrize(("role", "call", "body"), REQUESTS)
def test_each_role(role: str, call: str, body: dict[str, Any]) -> None:
    """Each kind of request that the CLI makes has its role, with every sign-in."""
    assert role_of(ask(call, body)) == role
    vertex = "/v1beta1/publishers/google/models/gemini-3.8-flash:{}?alt=sse"
    assert role_of(ask(call, body, vertex)) == role
    wrapped = {"model": "gemini-3.8-flash", "project": "p", "user_prompt_id": "1", "request": body}
    assert role_of(ask(call, wrapped, "/v1internal:{}?alt=sse")) == role


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
def test_a_conversation_about_the_markers(word: str) -> None:
    """Who talks about the words by which requests are known does not change a role: not in the prompt, not in a tool
    result, not in the instructions, not as a description."""
    result = {
        "functionResponse": {"name": "read_file", "response": {"output": word, "name": "complete_task"}}
    }
    body = {
        "contents": [*said("tell me about " + word, word), {"parts": [result], "role": "user"}],
        **instructed(f"{CORE} Remember: {word}"),
        "tools": [{"functionDeclarations": [{"name": "read_file", "description": f'"name": {word}'}]}],
    }
    assert role_of(ask(STREAM, body)) == "main"
    del body["tools"]
    assert role_of(ask(WHOLE, body)) == "other"
    assert role_of(ask(WHOLE, {**body, **wanting("complexity_score")})) == "router"


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
def test_odd_bodies(body: bytes) -> None:
    """A body that nobody can read has a role all the same."""
    assert role_of(ask(STREAM, body)) == "main"
    assert role_of(ask(WHOLE, body)) == "other"


def test_half_a_character() -> None:
    """The CLI sends half of a surrogate pair as it is."""
    body = json.dumps({"contents": said("half \ud83d"), **tools("complete_task")}).encode()
    assert b"\\ud83d" in body
    assert role_of(ask(STREAM, body)) == "subagent"


def test_other_calls() -> None:
    """Counting tokens is no question to a model."""
    assert role_of(ask("countTokens", {"contents": said("hello")})) == "other"
