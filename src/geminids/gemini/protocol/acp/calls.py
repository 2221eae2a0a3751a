"""Encode requests of geminids to the CLI over the Agent Client Protocol (ACP), and decode the
results.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from geminids.gemini.protocol.journal.lenient import UNREADABLE, value_of

__all__ = [
    "ApiKeyMeta",
    "AudioContent",
    "Authenticate",
    "Call",
    "Cancel",
    "ClientInfo",
    "Content",
    "ImageContent",
    "Initialize",
    "NewSession",
    "NewSessionResult",
    "PromptResult",
    "Resource",
    "ResourceBlob",
    "ResourceLink",
    "ResourceText",
    "SendPrompt",
    "SetMode",
    "SetModel",
    "TextContent",
    "encode_answer",
    "encode_call",
    "encode_error",
    "encode_notification",
    "new_session_result",
    "prompt_result",
]

PROTOCOL = 1


class _Out(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base class of the messages that geminids sends to the CLI. The names of fields are encoded in
    camelCase.
    """


class ClientInfo(_Out, frozen=True, kw_only=True):
    name: str
    version: str


class Initialize(_Out, frozen=True, kw_only=True, omit_defaults=False):
    """The first request to the CLI (`initialize`).

    The request says that geminids offers no capabilities, such as access to files. So the tools of
    the CLI read and write files and start commands themselves.
    """

    client_info: ClientInfo
    client_capabilities: dict[str, Any] = {}
    protocol_version: int = PROTOCOL


class ApiKeyMeta(_Out, frozen=True, kw_only=True):
    key: str = msgspec.field(name="api-key")


class Authenticate(_Out, frozen=True, kw_only=True, omit_defaults=False):
    """A request that sets the API key for all sessions that are created after this request
    (acpRpcDispatcher.ts of Gemini CLI).
    """

    meta: ApiKeyMeta = msgspec.field(name="_meta")
    method_id: str = "gemini-api-key"


class NewSession(_Out, frozen=True, kw_only=True, omit_defaults=False):
    cwd: str
    mcp_servers: tuple[()] = ()


class TextContent(_Out, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class ImageContent(_Out, frozen=True, kw_only=True, tag_field="type", tag="image"):
    data: str
    mime_type: str


class AudioContent(_Out, frozen=True, kw_only=True, tag_field="type", tag="audio"):
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


Content = TextContent | ImageContent | AudioContent | ResourceLink | Resource


class SendPrompt(_Out, frozen=True, kw_only=True):
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


Call = Authenticate | Initialize | NewSession | SendPrompt | SetMode | SetModel
_METHODS: dict[type, str] = {
    Authenticate: "authenticate",
    Initialize: "initialize",
    NewSession: "session/new",
    SendPrompt: "session/prompt",
    SetMode: "session/set_mode",
    SetModel: "session/set_model",
    Cancel: "session/cancel",
}
_encoder = msgspec.json.Encoder()


def encode_call(number: int, call: Call | str) -> bytes:
    """Encode a request to the CLI as one line of JSON-RPC. `number` is the id of the request.

    If `call` is a string, it is the name of a method that has no parameters.
    """
    method = call if isinstance(call, str) else _METHODS[type(call)]
    params: Any = {} if isinstance(call, str) else call
    return _line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def encode_notification(note: Cancel) -> bytes:
    """Encode a notification to the CLI as one line of JSON-RPC. The CLI sends no response to a
    notification.
    """
    return _line({"jsonrpc": "2.0", "method": _METHODS[type(note)], "params": note})


def encode_answer(number: Any, option: str | None) -> bytes:
    """Encode the response to a permission request of the CLI as one line of JSON-RPC. `number` is
    the id of the request.

    `option` is the id of the selected option. None means that the turn was cancelled.
    """
    outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
    return _line({"jsonrpc": "2.0", "id": number, "result": {"outcome": outcome}})


def encode_error(number: Any, code: int, message: str) -> bytes:
    """Encode an error response to the CLI, for a request that geminids does not support. `number`
    is the id of the request, and `code` a JSON-RPC error code.
    """
    return _line({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})


def _line(message: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:
        # File names that are not UTF-8 contain lone surrogates. Replace them, as a headless run
        # does.
        text = json.dumps(msgspec.to_builtins(message), ensure_ascii=False)
        return text.encode("utf-8", "replace") + b"\n"


_T = TypeVar("_T")


class PromptResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the request `session/prompt`. `reason` says why the CLI ended the turn, for
    example "end_turn".
    """

    reason: str = msgspec.field(name="stopReason")


class NewSessionResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of the request `session/new`: the id of the new session, and the
    available models.
    """

    session_id: str
    models: Any = None

    @property
    def model(self) -> str | None:
        """The model that the new session uses first; None if the CLI did not report it."""
        model = self.models.get("currentModelId") if isinstance(self.models, dict) else None
        return model if isinstance(model, str) else None


def prompt_result(result: bytes | msgspec.Raw) -> PromptResult:
    """Decode the result of the request `session/prompt`. Raises `msgspec.DecodeError` if the result
    is not valid.
    """
    return _read(result, PromptResult)


def new_session_result(result: bytes | msgspec.Raw) -> NewSessionResult:
    """Decode the result of the request `session/new`. Raises `msgspec.DecodeError` if the result is
    not valid.
    """
    return _read(result, NewSessionResult)


def _read(result: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(result, type=kind)
    except UNREADABLE:
        return msgspec.convert(value_of(bytes(result)), kind)
