"""What `--output-format stream-json` prints, exactly as the CLI says it (core/src/output/types.ts)."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import replace_surrogates

__all__ = [
    "ErrorLine",
    "Init",
    "Message",
    "Odd",
    "ResultLine",
    "Stats",
    "ToolResult",
    "ToolUse",
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
    """A piece of text; `role` is `user` for the echo of the prompt. Roles are open: a new one must not fail."""

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
    """A tool's end. `output` is only what the CLI would display: empty for read_file, absent for write_file."""

    tool_id: str
    status: str
    timestamp: str = ""
    output: Any = None
    error: Any = None


class ErrorLine(_Line, tag="error", frozen=True):
    """A warning or an error on the way; never the end of a run."""

    severity: str
    message: str
    timestamp: str = ""


class ResultLine(_Line, tag="result", frozen=True):
    """The last line, where the CLI got that far. Its parts are read one by one: none may cost us the rest."""

    status: str
    timestamp: str = ""
    error: Any = None
    stats: Any = None


class Odd(msgspec.Struct, frozen=True):
    """A line that is none of these: `why` says what it is (noise, unknown_event, protocol, encoding)."""

    why: str
    line: str


WireLine = Init | Message | ToolUse | ToolResult | ErrorLine | ResultLine

_decoder: msgspec.json.Decoder[WireLine] = msgspec.json.Decoder(WireLine)
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
# strict=False: a raw control character in a string is no reason to lose the rest of it.
_reader = json.JSONDecoder(strict=False)
_BEGINNING = '{"type":'
_MOST_TRIES = 20
# Each type, with the fields that a message of it is nothing without.
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
    """The sums of one process: all requests of all models, the router's and subagents' included."""

    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached: int | None = None
    duration_ms: int | None = None
    tool_calls: int | None = None
    models: dict[str, ModelStats] = {}


def decode_block(block: bytes) -> list[WireLine | Odd]:
    """A block of whole lines, in order; a block without oddities is decoded at once. Nothing raises."""
    try:
        return _decoder.decode_lines(block)  # type: ignore[return-value]
    except _UNREADABLE:
        found: list[WireLine | Odd] = []
        for line in block.split(b"\n"):
            if line.strip():
                found += decode_line(line)
        return found


def decode_line(line: bytes) -> list[WireLine | Odd]:
    """One line: mostly one message; two where two objects share a line."""
    try:
        return [_decoder.decode(line)]
    except _UNREADABLE:
        pass
    line = line.removeprefix(_BOM).strip()
    if not line:
        return []
    try:
        return _decode_odd(line.decode())
    except UnicodeDecodeError:
        # Bad bytes cost the characters that they are in, not the event.
        text = line.decode("utf-8", "replace")
        return [Odd("encoding", text), *(part for part in _decode_odd(text) if not _is_noise(part))]


def _is_noise(part: WireLine | Odd) -> bool:
    return isinstance(part, Odd) and part.why == "noise"


def _decode_odd(text: str) -> list[WireLine | Odd]:
    """A line that is not just one message: several objects, text around one, an unknown type, or noise."""
    found: list[WireLine | Odd] = []
    at = 0
    tries = _MOST_TRIES
    while at < len(text):
        start = text.find("{", at)
        value, end = _object_at(text, start)
        if end is None and start >= 0 and tries and not text.startswith(_BEGINNING, start):
            # That brace was noise. But a message that is cut off is never searched for others: what stands in
            # it is what it quotes. The tries are bounded, since each may read to the end of the line.
            tries -= 1
            start = text.find(_BEGINNING, start)
            value, end = _object_at(text, start)
        noise = (text[at:] if end is None else text[at:start]).strip()
        if noise:
            found.append(Odd("noise", noise))
        if end is None:
            break
        found += _typed(text[start:end], value)
        at = end
    return found


def _object_at(text: str, start: int) -> tuple[Any, int | None]:
    if start < 0:
        return None, None
    try:
        return _reader.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, None


def _typed(text: str, value: Any) -> list[WireLine | Odd]:
    """An object by itself: as it is, or without what cannot be read of it."""
    kind = value.get("type")
    if not isinstance(kind, str):
        return [Odd("noise", text)]
    if kind not in _NEEDED:
        return [Odd("unknown_event", text)]
    try:
        return [_decoder.decode(text)]
    except _UNREADABLE:
        pass
    # A half of a surrogate pair (the CLI cuts tool output at any UTF-16 unit, and JSON.stringify escapes what
    # is left) or a raw control character costs that character; an optional field of a new type, that field.
    for why, kept in (("encoding", value), ("protocol", {name: value.get(name) for name in _NEEDED[kind]})):
        try:
            return [Odd(why, text), msgspec.convert(replace_surrogates(kept), WireLine)]
        except _UNREADABLE:
            pass
    return [Odd("protocol", text)]


def stats_of(raw: Any) -> Stats | None:
    """The `stats` of a result, as far as they can be read."""
    if not isinstance(raw, dict) or not raw:
        return None
    models = raw.get("models")
    if not isinstance(models, dict):
        models = {}
    return Stats(
        **_counts(raw, Stats),
        models={
            name: ModelStats(**_counts(of, ModelStats)) for name, of in models.items() if isinstance(of, dict)
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
    """The type and message of an `error`: an object in every release, a string in one seed document."""
    if raw is None:
        return None
    if isinstance(raw, dict):
        kind = raw.get("type")
        message = raw.get("message")
        return kind if isinstance(kind, str) else None, message if isinstance(message, str) else text_of(raw)
    return None, text_of(raw)


def text_of(value: Any) -> str:
    """A JSON value as text: itself where it is text, its JSON else."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "(a value too deep to be shown)"
