"""Decode the lines of `--output-format stream-json` (core/src/output/types.ts)."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import replace_surrogates

__all__ = [
    "ErrorLine",
    "Init",
    "Message",
    "ResultLine",
    "Stats",
    "ToolResult",
    "ToolUse",
    "UnexpectedLine",
    "WireLine",
    "decode_block",
    "decode_line",
    "error_of",
    "stats_of",
    "text_of",
]

_BOM = b"\xef\xbb\xbf"


class _Line(msgspec.Struct, frozen=True, tag_field="type", gc=False):
    pass


class Init(_Line, tag="init", frozen=True):
    """The first line. `model` is the requested string, not the served model."""

    timestamp: str = ""
    session_id: str | None = None
    model: str | None = None


class Message(_Line, tag="message", frozen=True):
    """A piece of text. `role` is `user` for the echo of the prompt; unknown roles are accepted."""

    role: str
    content: str
    timestamp: str = ""
    delta: bool = False


class ToolUse(_Line, tag="tool_use", frozen=True):
    """A tool call. All calls of a model turn come before the first result."""

    tool_name: str
    tool_id: str
    timestamp: str = ""
    parameters: Any = None


class ToolResult(_Line, tag="tool_result", frozen=True):
    """The result of a tool call.

    `output` is only what the CLI would display: empty for read_file, absent for write_file.
    """

    tool_id: str
    status: str
    timestamp: str = ""
    output: Any = None
    error: Any = None


class ErrorLine(_Line, tag="error", frozen=True):
    """A warning or an error during the run; never its end."""

    severity: str
    message: str
    timestamp: str = ""


class ResultLine(_Line, tag="result", frozen=True):
    """The last line of a run that finished.

    `error` and `stats` are decoded later, so that a bad value in one does not lose the rest.
    """

    status: str
    timestamp: str = ""
    error: Any = None
    stats: Any = None


class UnexpectedLine(msgspec.Struct, frozen=True):
    """A line that is not a valid message; `why` is noise, unknown_event, protocol or encoding."""

    why: str
    line: str


WireLine = Init | Message | ToolUse | ToolResult | ErrorLine | ResultLine

_decoder: msgspec.json.Decoder[WireLine] = msgspec.json.Decoder(WireLine)
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
# strict=False accepts raw control characters in strings.
_reader = json.JSONDecoder(strict=False)
_MESSAGE_START = '{"type":'
_MAX_TRIES = 20
# The fields of each type that we keep if the other fields cannot be decoded.
_NEEDED = {
    "init": ("type",),
    "message": ("type", "role", "content"),
    "tool_use": ("type", "tool_name", "tool_id", "parameters"),
    "tool_result": ("type", "tool_id", "status", "output", "error"),
    "error": ("type", "severity", "message"),
    "result": ("type", "status", "error", "stats"),
}


class ModelStats(msgspec.Struct, frozen=True):
    """The tokens of one model, since 0.34."""

    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached: int | None = None


class Stats(msgspec.Struct, frozen=True):
    """The totals of one process: all requests of all models, including router and subagents."""

    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached: int | None = None
    duration_ms: int | None = None
    tool_calls: int | None = None
    models: dict[str, ModelStats] = {}


def decode_block(block: bytes) -> list[WireLine | UnexpectedLine]:
    """Decode a block of whole lines: all at once if every line is valid, else one by one.

    Never raises.
    """
    try:
        return _decoder.decode_lines(block)  # type: ignore[return-value]
    except _UNREADABLE:
        decoded: list[WireLine | UnexpectedLine] = []
        for line in block.split(b"\n"):
            if line.strip():
                decoded += decode_line(line)
        return decoded


def decode_line(line: bytes) -> list[WireLine | UnexpectedLine]:
    """Decode one line: usually one message, more if several objects share the line."""
    try:
        return [_decoder.decode(line)]
    except _UNREADABLE:
        pass
    line = line.removeprefix(_BOM).strip()
    if not line:
        return []
    try:
        return _decode_unexpected(line.decode())
    except UnicodeDecodeError:
        # Invalid UTF-8 replaces only the bad characters; the event is kept.
        text = line.decode("utf-8", "replace")
        return [
            UnexpectedLine("encoding", text),
            *(part for part in _decode_unexpected(text) if not _is_noise(part)),
        ]


def _is_noise(part: WireLine | UnexpectedLine) -> bool:
    return isinstance(part, UnexpectedLine) and part.why == "noise"


def _decode_unexpected(text: str) -> list[WireLine | UnexpectedLine]:
    """Decode a line with several objects, text around an object, an unknown type, or noise."""
    decoded: list[WireLine | UnexpectedLine] = []
    at = 0
    tries = _MAX_TRIES
    while at < len(text):
        start = text.find("{", at)
        value, end = _object_at(text, start)
        if end is None and start >= 0 and tries and not text.startswith(_MESSAGE_START, start):
            # The brace was noise: look for a message after it. Never search inside a truncated
            # message, which may quote other messages. The tries are bounded because each may read
            # to the end of the line.
            tries -= 1
            start = text.find(_MESSAGE_START, start)
            value, end = _object_at(text, start)
        noise = (text[at:] if end is None else text[at:start]).strip()
        if noise:
            decoded.append(UnexpectedLine("noise", noise))
        if end is None:
            break
        decoded += _typed(text[start:end], value)
        at = end
    return decoded


def _object_at(text: str, start: int) -> tuple[Any, int | None]:
    if start < 0:
        return None, None
    try:
        return _reader.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, None


def _typed(text: str, value: Any) -> list[WireLine | UnexpectedLine]:
    """Decode one object; if that fails, without the characters or fields that cannot be decoded."""
    kind = value.get("type")
    if not isinstance(kind, str):
        return [UnexpectedLine("noise", text)]
    if kind not in _NEEDED:
        return [UnexpectedLine("unknown_event", text)]
    try:
        return [_decoder.decode(text)]
    except _UNREADABLE:
        pass
    # First replace lone surrogates (the CLI cuts tool output at any UTF-16 unit, and JSON.stringify
    # escapes the remaining half) and raw control characters; then drop optional fields, one of
    # which has an unknown type.
    for why, kept in (("encoding", value), ("protocol", {name: value.get(name) for name in _NEEDED[kind]})):
        try:
            return [UnexpectedLine(why, text), msgspec.convert(replace_surrogates(kept), WireLine)]
        except _UNREADABLE:
            pass
    return [UnexpectedLine("protocol", text)]


def stats_of(raw: Any) -> Stats | None:
    """Decode the `stats` of a result; values that are not counts are left out."""
    if not isinstance(raw, dict) or not raw:
        return None
    models = raw.get("models")
    if not isinstance(models, dict):
        models = {}
    return Stats(
        **_counts(raw, Stats),
        models={
            name: ModelStats(**_counts(counts, ModelStats))
            for name, counts in models.items()
            if isinstance(counts, dict)
        },
    )


def _counts(raw: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        name: int(value) for name, value in raw.items() if name in kind.__struct_fields__ and _is_count(value)
    }


def _is_count(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 <= value < 2**63 and value % 1 == 0


def error_of(raw: Any) -> tuple[str | None, str] | None:
    """Return type and message of an `error`.

    It is an object in every release, and a string in one seed document.
    """
    if raw is None:
        return None
    if isinstance(raw, dict):
        kind = raw.get("type")
        message = raw.get("message")
        return kind if isinstance(kind, str) else None, message if isinstance(message, str) else text_of(raw)
    return None, text_of(raw)


def text_of(value: Any) -> str:
    """Return a string as it is, and any other JSON value as JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "(a value that is nested too deep to show)"
