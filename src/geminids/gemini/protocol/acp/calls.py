"""Requests that we send over the Agent Client Protocol, and their results."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from geminids.gemini.protocol.journal.lenient import UNREADABLE, value_of

__all__ = [
    "ApiKey",
    "Audio",
    "Authenticate",
    "Call",
    "Cancel",
    "ClientInfo",
    "Content",
    "Image",
    "Initialize",
    "NewSession",
    "Opened",
    "Prompt",
    "Resource",
    "ResourceBlob",
    "ResourceLink",
    "ResourceText",
    "SetMode",
    "SetModel",
    "Stopped",
    "Text",
    "encode_answer",
    "encode_call",
    "encode_error",
    "encode_note",
    "opened_of",
    "stopped_of",
]

PROTOCOL = 1


class _Out(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of outgoing messages: fields are encoded in camelCase."""


class ClientInfo(_Out, frozen=True, kw_only=True):
    name: str
    version: str


class Initialize(_Out, frozen=True, kw_only=True, omit_defaults=False):
    """We offer no file system and no terminals, so the CLI's tools access them directly."""

    client_info: ClientInfo
    client_capabilities: dict[str, Any] = {}
    protocol_version: int = PROTOCOL


class ApiKey(_Out, frozen=True, kw_only=True):
    key: str = msgspec.field(name="api-key")


class Authenticate(_Out, frozen=True, kw_only=True, omit_defaults=False):
    """Set the API key for sessions that are opened from now on (acpRpcDispatcher.ts)."""

    meta: ApiKey = msgspec.field(name="_meta")
    method_id: str = "gemini-api-key"


class NewSession(_Out, frozen=True, kw_only=True, omit_defaults=False):
    cwd: str
    mcp_servers: tuple[()] = ()


class Text(_Out, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class Image(_Out, frozen=True, kw_only=True, tag_field="type", tag="image"):
    data: str
    mime_type: str


class Audio(_Out, frozen=True, kw_only=True, tag_field="type", tag="audio"):
    data: str
    mime_type: str


class ResourceLink(_Out, frozen=True, kw_only=True, tag_field="type", tag="resource_link"):
    uri: str
    name: str


class ResourceText(_Out, frozen=True, kw_only=True):
    uri: str
    text: str
    mime_type: str | None = None


class ResourceBlob(_Out, frozen=True, kw_only=True):
    uri: str
    blob: str
    mime_type: str | None = None


class Resource(_Out, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    resource: ResourceText | ResourceBlob


Content = Text | Image | Audio | ResourceLink | Resource


class Prompt(_Out, frozen=True, kw_only=True):
    session_id: str
    prompt: tuple[Content, ...]


class SetMode(_Out, frozen=True, kw_only=True):
    session_id: str
    mode_id: str


class SetModel(_Out, frozen=True, kw_only=True):
    session_id: str
    model_id: str


class Cancel(_Out, frozen=True, kw_only=True):
    session_id: str


Call = Authenticate | Initialize | NewSession | Prompt | SetMode | SetModel
_METHODS: dict[type, str] = {
    Authenticate: "authenticate",
    Initialize: "initialize",
    NewSession: "session/new",
    Prompt: "session/prompt",
    SetMode: "session/set_mode",
    SetModel: "session/set_model",
    Cancel: "session/cancel",
}
_encoder = msgspec.json.Encoder()


def encode_call(number: int, call: Call | str) -> bytes:
    """Encode a request. A string is a method without parameters."""
    method = call if isinstance(call, str) else _METHODS[type(call)]
    params: Any = {} if isinstance(call, str) else call
    return _line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def encode_note(note: Cancel) -> bytes:
    """Encode a notification, which gets no response."""
    return _line({"jsonrpc": "2.0", "method": _METHODS[type(note)], "params": note})


def encode_answer(number: Any, option: str | None) -> bytes:
    """Encode the response to a permission request; `option` is None if the turn is cancelled."""
    outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
    return _line({"jsonrpc": "2.0", "id": number, "result": {"outcome": outcome}})


def encode_error(number: Any, code: int, message: str) -> bytes:
    """Encode the error response to a request that we do not support."""
    return _line({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})


def _line(message: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:
        # Replace lone surrogates (from file names that are not UTF-8), as in a headless run.
        text = json.dumps(msgspec.to_builtins(message), ensure_ascii=False)
        return text.encode("utf-8", "replace") + b"\n"


_T = TypeVar("_T")


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `session/prompt`."""

    reason: str = msgspec.field(name="stopReason")


class Opened(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of `session/new`."""

    session_id: str
    models: Any = None

    @property
    def model(self) -> str | None:
        """The session's model until another one is set."""
        model = self.models.get("currentModelId") if isinstance(self.models, dict) else None
        return model if isinstance(model, str) else None


def stopped_of(result: bytes | msgspec.Raw) -> Stopped:
    """Decode the result of `session/prompt`. Raises `msgspec.DecodeError`."""
    return _read(result, Stopped)


def opened_of(result: bytes | msgspec.Raw) -> Opened:
    """Decode the result of `session/new`. Raises `msgspec.DecodeError`."""
    return _read(result, Opened)


def _read(result: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(result, type=kind)
    except UNREADABLE:
        return msgspec.convert(value_of(bytes(result)), kind)
