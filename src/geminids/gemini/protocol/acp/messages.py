"""Decode messages of Gemini CLI in the Agent Client Protocol: JSON-RPC, one message per line.

Names and kinds are plain strings, so that a message with an unknown one can still be decoded.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from geminids.gemini.protocol.journal.lenient import UNREADABLE, one_line, value_of

__all__ = [
    "Answer",
    "Message",
    "Note",
    "Permission",
    "PermissionOption",
    "RpcError",
    "ToolCall",
    "Unknown",
    "Update",
    "decode_lines",
]


class _In(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of incoming messages: fields are camelCase; unknown fields are ignored."""


class RpcError(_In, frozen=True, kw_only=True):
    code: int = 0
    message: str = ""
    data: Any = None

    @property
    def details(self) -> str | None:
        """The data as text."""
        if self.data is None or isinstance(self.data, str):
            return self.data
        return msgspec.json.encode(self.data).decode()


class ToolCall(_In, frozen=True, kw_only=True):
    """A tool call in an update or a permission request; any field may be missing."""

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
        """The joined text of the content blocks; None without text."""
        blocks = [item.get("content") for item in _dicts(self.content) if item.get("type") == "content"]
        texts = [text for block in blocks if (text := _string(block, "text")) is not None]
        return "".join(texts) if texts else None

    @property
    def folders(self) -> tuple[str, ...]:
        """The folder that a shell tool runs in; empty if it runs where the CLI runs.

        Several candidates if the folder's name or the model's description contains brackets.
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
        """Path, old text and new text of each diff in the content."""
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
    """The parameters of a permission request."""

    session_id: str
    tool_call: ToolCall
    options: list[PermissionOption] = []


class Update(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One update of a session: a piece of text or thought, or a tool call."""

    session_id: str
    kind: str
    text: str | None = None
    tool: ToolCall | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The response to one of our requests."""

    id: Any
    result: msgspec.Raw
    error: RpcError | None


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A request from the agent; we respond with its id."""

    id: Any
    method: str
    permission: Permission | None


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is not a message of this protocol, or an unknown update."""

    why: Literal["noise", "protocol", "unknown_update"]
    line: str
    session_id: str | None = None


Message = Update | Answer | Note | Unknown

_SHOWN = 2000
# The CLI describes a shell call as `[in src] (the model's description) [background]`.
_IN, _BACKGROUND = "[in ", " [background]"
_LONGEST_PATH = 4200
_CHUNKS = ("agent_message_chunk", "agent_thought_chunk", "user_message_chunk")
_TOOLS = ("tool_call", "tool_call_update")
# Known updates that we ignore: available commands, current mode, session title, options.
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
_tool = msgspec.json.Decoder(ToolCall)
_permission = msgspec.json.Decoder(Permission)
_error: msgspec.json.Decoder[RpcError | None] = msgspec.json.Decoder(RpcError | None)


def decode_lines(block: bytes) -> list[Message]:
    """Decode a block of whole lines. Never raises."""
    return [_decoded(line) for line in block.split(b"\n") if line.strip()]


def _decoded(line: bytes) -> Message:
    try:
        return _message(line)
    except UNREADABLE:
        pass
    # Replace lone surrogates, then decode again: the CLI cuts texts at any UTF-16 unit.
    value = value_of(line)
    if not isinstance(value, dict) or not value.keys() & {"method", "id"}:
        return Unknown(why="noise", line=_shown(line))
    try:
        return _message(one_line(value))
    except UNREADABLE:
        return Unknown(why="protocol", line=_shown(line))


def _message(line: bytes) -> Message:
    message = _envelope.decode(line)
    if message.method == "session/update":
        return _update(message.params, line)
    if message.id is None:
        return Unknown(why="protocol", line=_shown(line))
    if message.method is not None:
        return _note(message)
    return Answer(id=message.id, result=message.result, error=_error_of(message.error))


def _update(raw: msgspec.Raw, line: bytes) -> Message:
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


def _note(message: _Envelope) -> Note:
    permission = None
    if message.method == "session/request_permission":
        try:
            permission = _permission.decode(message.params)
        except msgspec.ValidationError:
            pass  # we respond anyway, because the agent waits for a response
    return Note(id=message.id, method=message.method or "", permission=permission)


def _error_of(raw: msgspec.Raw) -> RpcError | None:
    """Decode the error of a response; if that fails, use its text, because a caller waits."""
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
