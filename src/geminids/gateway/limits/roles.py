"""Determine the role of an API request (what the CLI uses it for) from its path and body. This
module does no I/O.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from geminids.gateway.messages import RequestRole
from geminids.gateway.request import Request

__all__ = ["declared_tools", "decode_leniently", "role_of"]

T = TypeVar("T")

_SUBAGENT_TOOL = "complete_task"
# Some utility requests ask for an answer with a JSON schema. A field of the schema identifies the
# role.
_SCHEMAS: dict[str, RequestRole] = {
    "complexity_score": "router",  # numericalClassifierStrategy.ts
    "model_choice": "router",  # classifierStrategy.ts
    "unproductive_state_confidence": "loop_check",  # loopDetectionService.ts
    "chronological_summary": "compression",  # snapshots of the experimental context management
}
# Other utility requests are identified by the beginning of their system instruction or
# conversation.
_BEGINNINGS: dict[bytes, RequestRole] = {
    b"You are a specialized system component responsible for distilling chat history": "compression",
    b"You are an expert context compressor": "compression",
    b"### State Update: Agent Continuity": "compression",
    b"Follow the user's instructions below using the provided webpage content.": "fetch",  # without urlContext
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


class _RoleFields(msgspec.Struct, frozen=True, rename="camel"):
    contents: msgspec.Raw = _NOTHING
    system_instruction: msgspec.Raw = _NOTHING
    tools: tuple[_Tool, ...] | None = None
    generation_config: _Config | None = None


class _RoleBody(_RoleFields, frozen=True, rename="camel"):
    request: _RoleFields | None = None  # Code Assist puts the same fields into this object


_decoder = msgspec.json.Decoder(_RoleBody)


def role_of(request: Request) -> RequestRole:
    """Return the role of a request: what the CLI uses it for. The role `nested` (a request of a run
    that a tool of this run started) is not detected here; the caller of this function detects it by
    a header.

    The main conversation and subagents use streaming. Requests of all other roles ask for one
    complete answer.

    Only the fields that the CLI itself writes, and the beginning of `contents`, are examined. All
    other fields contain text from users, tools and models, which could imitate another role.
    """
    path = request.path.partition("?")[0]
    if path.endswith(":streamGenerateContent"):
        # Search the bytes first: this takes 4 ms for 20 MB; decoding takes 10 ms.
        if _SUBAGENT_TOOL.encode() not in request.raw:
            return "main"
        body = _read(request.raw)
        return "subagent" if body is not None and _declares_subagent_tool(body) else "main"
    if not path.endswith(":generateContent"):
        return "other"
    body = _read(request.raw)
    return "other" if body is None else _utility_role(body)


def declared_tools(request: Request) -> tuple[str, ...] | None:
    """Return the names of the tools that the model may call in this request, in the CLI's order.
    Return None if the body of the request cannot be decoded.
    """
    body = _read(request.raw)
    if body is None:
        return None
    functions = (function for tool in body.tools or () for function in tool.function_declarations)
    return tuple(function.name for function in functions if function.name)


def decode_leniently(decoder: msgspec.json.Decoder[T], raw: bytes) -> T | None:
    """Decode JSON with `decoder`; return None if the JSON is invalid.

    The CLI may send half of a surrogate pair (`\\ud83d`), which msgspec rejects. In this case, the
    half is replaced with another character.
    """
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return decoder.decode(raw.replace(b"\\ud", b"\\uf").replace(b"\\uD", b"\\uF"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _read(raw: bytes) -> _RoleFields | None:
    body = decode_leniently(_decoder, raw)
    return body and (body.request or body)


def _declares_subagent_tool(body: _RoleFields) -> bool:
    """Return whether the request declares the tool `complete_task`, which only subagents have. A
    search for the name in the body is not enough, because a conversation may mention it.
    """
    return any(
        function.name == _SUBAGENT_TOOL
        for tool in body.tools or ()
        for function in tool.function_declarations
    )


def _utility_role(body: _RoleFields) -> RequestRole:
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
