"""Decode the messages that the CLI sends over the Agent Client Protocol (ACP). Each message is one
line of JSON-RPC.

The names of methods and the kinds of updates are plain strings. So a message with an unknown method
or kind can be decoded too.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from geminids.gemini.protocol.journal.lenient import UNREADABLE, one_line, value_of

__all__ = [
    "AcpMessage",
    "AcpToolCall",
    "Permission",
    "PermissionOption",
    "RpcError",
    "RpcRequest",
    "RpcResponse",
    "Unknown",
    "Update",
    "decode_lines",
]


class _In(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base class of the messages from the CLI.

    In JSON, the names of their fields are in camelCase. Unknown fields are ignored.
    """


class RpcError(_In, frozen=True, kw_only=True):
    code: int = 0
    message: str = ""
    data: Any = None

    @property
    def details(self) -> str | None:
        """The field `data` of the error, as text; None if it is missing."""
        if self.data is None or isinstance(self.data, str):
            return self.data
        return msgspec.json.encode(self.data).decode()


class AcpToolCall(_In, frozen=True, kw_only=True):
    """A tool call in an update or in a permission request. All fields except `tool_call_id` may be
    missing.
    """

    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: Any = None
    locations: Any = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for location in _dicts(self.locations) if (path := _string(location, "path")))

    @property
    def text(self) -> str | None:
        """The texts of all content blocks of the tool call, joined without a separator; None if no
        block contains text.
        """
        blocks = [item.get("content") for item in _dicts(self.content) if item.get("type") == "content"]
        texts = [text for block in blocks if (text := _string(block, "text")) is not None]
        return "".join(texts) if texts else None

    @property
    def folders(self) -> tuple[str, ...]:
        """The possible names of the folder in which the tool call runs a shell command. Usually
        there is one name. The tuple is empty if `text` names no folder; then the command runs in
        the CLI's working folder.

        The folder's name is in square brackets at the beginning of `text`. If `text` contains
        several closing brackets, it can be unclear where the name ends. Then the tuple has several
        names.
        """
        text = self.text or ""
        if not text.startswith(_IN):
            return ()
        described = text.removesuffix(_BACKGROUND).endswith(")")
        ends = (at for at, sign in enumerate(text[:_LONGEST_PATH]) if sign == "]")
        return tuple(
            text[len(_IN) : at]
            for at in ends
            if text[at + 1 :] in ("", _BACKGROUND) or (described and text.startswith(" (", at + 1))
        )

    @property
    def diffs(self) -> tuple[tuple[str, str | None, str], ...]:
        """The diffs in the content of the tool call. Each has a path, the old text and the new
        text.

        The old text is None if the file is new.
        """
        diffs = (item for item in _dicts(self.content) if item.get("type") == "diff")
        return tuple(
            (path, _string(diff, "oldText"), _string(diff, "newText") or "")
            for diff in diffs
            if (path := _string(diff, "path"))
        )


class PermissionOption(_In, frozen=True, kw_only=True):
    option_id: str
    name: str = ""
    kind: str = ""


class Permission(_In, frozen=True, kw_only=True):
    """The content of a permission request: the tool call, and the options to choose from."""

    session_id: str
    tool_call: AcpToolCall
    options: list[PermissionOption] = []


class Update(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One update of a session. If the update is a piece of a message or of a thought, `text`
    contains this piece; otherwise `text` is None. If the update is about a tool call, `tool`
    contains the state of the call; otherwise `tool` is None.
    """

    session_id: str
    kind: str
    text: str | None = None
    tool: AcpToolCall | None = None


class RpcResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response of the CLI to the request of geminids with the same `id`. `error` is None if the
    request succeeded.
    """

    id: Any
    result: msgspec.Raw
    error: RpcError | None


class RpcRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the CLI to geminids, such as a permission request. geminids must send a response
    with the same `id`. `permission` is None if this is not a permission request, or if its
    parameters are not valid.
    """

    id: Any
    method: str
    permission: Permission | None


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the CLI that is not a valid message of the protocol, or an update of an unknown
    kind. `why` is `noise` (the line is not a message), `protocol` (the message is not valid) or
    `unknown_update` (the kind of the update is unknown).
    """

    why: Literal["noise", "protocol", "unknown_update"]
    line: str
    session_id: str | None = None


AcpMessage = Update | RpcResponse | RpcRequest | Unknown

_SHOWN = 2000
# The CLI describes a shell call as `[in src] (the model's description) [background]`.
_IN, _BACKGROUND = "[in ", " [background]"
_LONGEST_PATH = 4200
_CHUNKS = ("agent_message_chunk", "agent_thought_chunk", "user_message_chunk")
_TOOLS = ("tool_call", "tool_call_update")
# Kinds of updates that are known but not needed: commands, current mode, session title, options.
QUIET = ("available_commands_update", "current_mode_update", "session_info_update", "config_option_update")


class _Envelope(msgspec.Struct, gc=False):
    id: Any = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Chunk(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""


class _UpdateHead(_In, frozen=True, kw_only=True):
    session_update: str
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Params(_In, frozen=True, kw_only=True):
    session_id: str
    update: msgspec.Raw


_envelope = msgspec.json.Decoder(_Envelope)
_params = msgspec.json.Decoder(_Params)
_head = msgspec.json.Decoder(_UpdateHead)
_chunk = msgspec.json.Decoder(_Chunk)
_tool = msgspec.json.Decoder(AcpToolCall)
_permission = msgspec.json.Decoder(Permission)
_error: msgspec.json.Decoder[RpcError | None] = msgspec.json.Decoder(RpcError | None)


def decode_lines(block: bytes) -> list[AcpMessage]:
    """Decode a block of complete lines to messages. An invalid line becomes an `Unknown` message.
    Never raises.
    """
    return [_decoded(line) for line in block.split(b"\n") if line.strip()]


def _decoded(line: bytes) -> AcpMessage:
    try:
        return _message(line)
    except UNREADABLE:
        pass
    # Replace lone surrogates and decode again: the CLI truncates texts at any UTF-16 unit, so half
    # of a character can remain.
    value = value_of(line)
    if not isinstance(value, dict) or not value.keys() & {"method", "id"}:
        return Unknown(why="noise", line=_shown(line))
    try:
        return _message(one_line(value))
    except UNREADABLE:
        return Unknown(why="protocol", line=_shown(line))


def _message(line: bytes) -> AcpMessage:
    message = _envelope.decode(line)
    if message.method == "session/update":
        return _update(message.params, line)
    if message.id is None:
        return Unknown(why="protocol", line=_shown(line))
    if message.method is not None:
        return _request(message)
    return RpcResponse(id=message.id, result=message.result, error=_error_of(message.error))


def _update(raw: msgspec.Raw, line: bytes) -> AcpMessage:
    params = _params.decode(raw)
    head = _head.decode(params.update)
    kind = head.session_update
    if kind in _CHUNKS:
        chunk = _chunk.decode(head.content)
        if chunk.type == "text":
            return Update(session_id=params.session_id, kind=kind, text=chunk.text)
    elif kind in _TOOLS:
        return Update(session_id=params.session_id, kind=kind, tool=_tool.decode(params.update))
    elif kind in QUIET:
        return Update(session_id=params.session_id, kind=kind)
    return Unknown(why="unknown_update", line=_shown(line), session_id=params.session_id)


def _request(message: _Envelope) -> RpcRequest:
    permission = None
    if message.method == "session/request_permission":
        try:
            permission = _permission.decode(message.params)
        except msgspec.ValidationError:
            pass  # return the request anyway, because the CLI waits for a response
    return RpcRequest(id=message.id, method=message.method or "", permission=permission)


def _error_of(raw: msgspec.Raw) -> RpcError | None:
    """Decode the error of a response. Return None if the response has no error. If the error is not
    valid, return an `RpcError` whose message is the JSON text of the error.
    """
    try:
        return _error.decode(raw)
    except msgspec.ValidationError:
        return RpcError(message=_shown(bytes(raw)))


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _string(value: Any, name: str) -> str | None:
    text = value.get(name) if isinstance(value, dict) else None
    return text if isinstance(text, str) else None
