"""Requests like those of the CLI, and helpers that send them to an upstream without a server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio

from geminids.gateway.request import Request
from geminids.gateway.upstream import Body, Head, Part, Upstream

__all__ = [
    "STREAM",
    "FixedUpstream",
    "body_text",
    "collect_parts",
    "make_body",
    "make_request",
    "session_context",
    "tool_result_content",
    "user_content",
]

STREAM = "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
AGENT = "GeminiCLI-tui/0.61.0/gemini-3-flash-preview (linux; x64; terminal)"


def make_request(body: Any, path: str = STREAM, *, key: str = "k", agent: str = AGENT) -> Request:
    """Return a request with this body: bytes unchanged, anything else encoded as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request.read(1, 0.0, "POST", path, {"x-goog-api-key": key, "user-agent": agent}, data)


def user_content(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


def tool_result_content(tool: str, output: str) -> dict[str, Any]:
    """Return a content with the result of a tool call. Its id contains a time, as in a real run."""
    response = {"name": tool, "response": {"output": output}, "id": f"{tool}_1794835534372_0"}
    return {"role": "user", "parts": [{"functionResponse": response}]}


def session_context(
    folder: str, day: str = "Monday, November 16, 2026", files: str = "└───a.py"
) -> dict[str, Any]:
    """Return the first content of a conversation, in which CLI 0.61.0 describes its environment."""
    return user_content(
        "<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.\n"
        f"Today's date is {day} (formatted according to the user's locale).\nMy operating system is: linux\n"
        f"The project's temporary directory is: {folder}/home/.gemini/tmp/work\n"
        f"- **Workspace Directories:**\n  - {folder}\n- **Directory Structure:**\n\n"
        f"Showing up to 200 items (files + folders).\n\n{folder}/\n{files}\n\n\n</session_context>"
    )


def make_body(*contents: dict[str, Any], **fields: Any) -> dict[str, Any]:
    system = {"role": "user", "parts": [{"text": "You are an agent. " * 200}]}
    return {"contents": list(contents), "systemInstruction": system, "tools": [], **fields}


class FixedUpstream:
    """An upstream that answers every request with these parts. It raises the exceptions among
    them."""

    def __init__(self, *parts: Part | Exception) -> None:
        self._parts = parts

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            yield part


def collect_parts(upstream: Upstream, request: Request, most: int | None = None) -> list[Part]:
    """Return the parts of an upstream's answer. The client closes the answer after `most` parts."""

    async def collect() -> list[Part]:
        parts: list[Part] = []
        answer: Any = upstream.answer(request)
        async for part in answer:
            parts.append(part)
            if len(parts) == most:
                await answer.aclose()
                break
        return parts

    return anyio.run(collect)


def body_text(parts: list[Part]) -> str:
    """Return the whole body of an answer as text."""
    assert isinstance(parts[0], Head)
    return b"".join(part.data for part in parts if isinstance(part, Body)).decode()
