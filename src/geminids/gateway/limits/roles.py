"""Determine the role of an API request of the CLI from its path and body. Pure."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from geminids.gateway.messages import RequestRole
from geminids.gateway.request import Request

__all__ = ["decode_leniently", "role_of"]

T = TypeVar("T")

_SUBAGENT_TOOL = "complete_task"
# Fields of the JSON schema that the CLI requests for the answer.
_SCHEMAS: dict[str, RequestRole] = {
    "complexity_score": "router",  # numericalClassifierStrategy.ts
    "model_choice": "router",  # classifierStrategy.ts
    "unproductive_state_confidence": "loop_check",  # loopDetectionService.ts
    "chronological_summary": "compression",  # the snapshots of the experimental context management
}
# Beginnings of a system instruction or a conversation.
_BEGINNINGS: dict[bytes, RequestRole] = {
    b"You are a specialized system component responsible for distilling chat history": "compression",
    b"You are an expert context compressor": "compression",
    b"### State Update: Agent Continuity": "compression",
    b"Follow the user's instructions below using the provided webpage content.": "fetch",  # if urlContext failed
}
_FIRST_TEXT = re.compile(rb'"text"\s*:\s*"(?:\\n)*')
_NOTHING = msgspec.Raw(b"null")


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None


class _Tool(msgspec.Struct, frozen=True, rename="camel"):
    function_declarations: tuple[_Function, ...] = ()
    google_search: Any = None
    url_context: Any = None


class _Schema(msgspec.Struct, frozen=True):
    properties: dict[str, msgspec.Raw] | None = None


class _Config(msgspec.Struct, frozen=True, rename="camel"):
    response_json_schema: _Schema | None = None
    response_schema: _Schema | None = None


class _Content(msgspec.Struct, frozen=True, rename="camel"):
    contents: msgspec.Raw = _NOTHING
    system_instruction: msgspec.Raw = _NOTHING
    tools: tuple[_Tool, ...] | None = None
    generation_config: _Config | None = None


class _Body(_Content, frozen=True, rename="camel"):
    request: _Content | None = None  # Code Assist wraps the same fields


_decoder = msgspec.json.Decoder(_Body)


def role_of(request: Request) -> RequestRole:
    """The role of a request. Never returns `nested`, which a header decides.

    The main conversation and subagents stream; all others request one complete answer. Only fields
    that the CLI itself writes decide, and the beginning of `contents`: the rest comes from users,
    tools and models.
    """
    path = request.path.partition("?")[0]
    if path.endswith(":streamGenerateContent"):
        # Searching bytes takes 4 ms for 20 MB, decoding 10.
        if _SUBAGENT_TOOL.encode() not in request.raw:
            return "main"
        body = _read(request.raw)
        return "subagent" if body is not None and _declares_subagent_tool(body) else "main"
    if not path.endswith(":generateContent"):
        return "other"
    body = _read(request.raw)
    return "other" if body is None else _utility_role(body)


def decode_leniently(decoder: msgspec.json.Decoder[T], raw: bytes) -> T | None:
    """Decode, or return None. The CLI sends half of a surrogate pair unchanged (`\\ud83d`), which
    msgspec rejects: it is then read as another character."""
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return decoder.decode(raw.replace(b"\\ud", b"\\uf").replace(b"\\uD", b"\\uF"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _read(raw: bytes) -> _Content | None:
    body = decode_leniently(_decoder, raw)
    return body and (body.request or body)


def _declares_subagent_tool(body: _Content) -> bool:
    """Whether the tool is declared. A conversation that only mentions it also contains its name."""
    return any(
        function.name == _SUBAGENT_TOOL
        for tool in body.tools or ()
        for function in tool.function_declarations
    )


def _utility_role(body: _Content) -> RequestRole:
    for tool in body.tools or ():
        if tool.google_search is not None:
            return "search"
        if tool.url_context is not None:
            return "fetch"
    config = body.generation_config or _Config()
    for schema in (config.response_json_schema, config.response_schema):
        for name in (schema and schema.properties) or ():
            if name in _SCHEMAS:
                return _SCHEMAS[name]
    for raw in (body.system_instruction, body.contents):
        head = bytes(memoryview(raw)[:200])
        text = _FIRST_TEXT.search(head)
        for beginning, role in _BEGINNINGS.items():
            if text is not None and head.startswith(beginning, text.end()):
                return role
    return "other"
