"""What `--output-format stream-json` prints, exactly as the CLI says it (core/src/output/types.ts)."""

from __future__ import annotations

import json
from typing import Any

import msgspec

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
_KNOWN = {"init", "message", "tool_use", "tool_result", "error", "result"}


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
    duration_ms: float | None = None
    tool_calls: int | None = None
    models: dict[str, ModelStats] = {}


def decode_block(block: bytes) -> list[WireLine | Odd]:
    """A block of whole lines, in order; a block without oddities is decoded at once."""
    try:
        return _decoder.decode_lines(block)  # type: ignore[return-value]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found: list[WireLine | Odd] = []
        for line in block.split(b"\n"):
            if line.strip():
                found += decode_line(line)
        return found


def decode_line(line: bytes) -> list[WireLine | Odd]:
    """One line: mostly one message; two where two objects share a line."""
    try:
        return [_decoder.decode(line)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    line = line.removeprefix(_BOM).strip()
    if not line:
        return []
    try:
        text = line.decode()
        return _decode_odd(text)
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
    reader = json.JSONDecoder()
    while at < len(text):
        start = text.find("{", at)
        value, end = _object_at(reader, text, start)
        if end is None:
            noise = text[at:].strip()
            at = len(text)
        else:
            noise = text[at:start].strip()
            at = end
        if noise:
            found.append(Odd("noise", noise))
        if end is not None:
            found.append(_typed(text[start:end], value))
    return found


def _object_at(reader: json.JSONDecoder, text: str, start: int) -> tuple[Any, int | None]:
    if start < 0:
        return None, None
    try:
        return reader.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, None


def _typed(text: str, value: Any) -> WireLine | Odd:
    kind = value.get("type")
    if not isinstance(kind, str):
        return Odd("noise", text)
    if kind not in _KNOWN:
        return Odd("unknown_event", text)
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Odd("protocol", text)


def stats_of(raw: Any) -> Stats | None:
    """The `stats` of a result, as far as they can be read."""
    if not isinstance(raw, dict) or not raw:
        return None
    readable = {name: value for name, value in raw.items() if name in Stats.__struct_fields__}
    models = readable.pop("models", None)
    kept: dict[str, Any] = {name: value for name, value in readable.items() if _is_count(value)}
    if isinstance(models, dict):
        kept["models"] = {
            name: {key: count for key, count in counts.items() if _is_count(count)}
            for name, counts in models.items()
            if isinstance(counts, dict)
        }
    return msgspec.convert(kept, Stats, strict=False)


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def error_of(raw: Any) -> tuple[str | None, str] | None:
    """The type and message of an `error`: an object in every release, a string in one seed document."""
    if raw is None:
        return None
    if isinstance(raw, str):
        return None, raw
    if isinstance(raw, dict):
        kind = raw.get("type")
        message = raw.get("message")
        return kind if isinstance(kind, str) else None, message if isinstance(message, str) else json.dumps(raw)
    return None, json.dumps(raw)
