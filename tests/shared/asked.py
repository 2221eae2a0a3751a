"""Requests as the CLI makes them, for upstreams that are asked without a server between."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio

from geminids.gateway.request import Request
from geminids.gateway.upstream import Body, Head, Part, Upstream

__all__ = ["STREAM", "Fixed", "asked", "body_of", "context", "heard", "result", "text_of", "user"]

STREAM = "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
AGENT = "GeminiCLI-tui/0.61.0/gemini-3-flash-preview (linux; x64; terminal)"


def asked(body: Any, path: str = STREAM, *, key: str = "k", agent: str = AGENT) -> Request:
    """A request with this body: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request.read(1, 0.0, "POST", path, {"x-goog-api-key": key, "user-agent": agent}, data)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


def result(tool: str, output: str) -> dict[str, Any]:
    """What a tool gave, with an id that no other run has."""
    given = {"name": tool, "response": {"output": output}, "id": f"{tool}_1794835534372_0"}
    return {"role": "user", "parts": [{"functionResponse": given}]}


def context(folder: str, day: str = "Monday, November 16, 2026", files: str = "└───a.py") -> dict[str, Any]:
    """The introduction of 0.61.0."""
    return user(
        "<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.\n"
        f"Today's date is {day} (formatted according to the user's locale).\nMy operating system is: linux\n"
        f"The project's temporary directory is: {folder}/home/.gemini/tmp/work\n"
        f"- **Workspace Directories:**\n  - {folder}\n- **Directory Structure:**\n\n"
        f"Showing up to 200 items (files + folders).\n\n{folder}/\n{files}\n\n\n</session_context>"
    )


def body_of(*contents: dict[str, Any], **fields: Any) -> dict[str, Any]:
    system = {"role": "user", "parts": [{"text": "You are an agent. " * 200}]}
    return {"contents": list(contents), "systemInstruction": system, "tools": [], **fields}


class Fixed:
    """An upstream that gives these parts to every request, and raises what is among them."""

    def __init__(self, *parts: Part | Exception) -> None:
        self._parts = parts

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            yield part


def heard(upstream: Upstream, request: Request, most: int | None = None) -> list[Part]:
    """What an upstream answers; after so many parts the client leaves."""

    async def hear() -> list[Part]:
        parts: list[Part] = []
        answer: Any = upstream.answer(request)
        async for part in answer:
            parts.append(part)
            if len(parts) == most:
                await answer.aclose()
                break
        return parts

    return anyio.run(hear)


def text_of(parts: list[Part]) -> str:
    """The whole body of an answer."""
    assert isinstance(parts[0], Head)
    return b"".join(part.data for part in parts if isinstance(part, Body)).decode()
