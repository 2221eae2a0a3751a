"""Decode the lines that the CLI prints with `--output-format stream-json`
(core/src/output/types.ts of Gemini CLI). Each line is a JSON object.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from geminids.gemini.protocol.journal.lenient import replace_surrogates

__all__ = [
    "ErrorLine",
    "InitLine",
    "MessageLine",
    "ProcessStats",
    "ResultLine",
    "ToolResultLine",
    "ToolUseLine",
    "UnexpectedLine",
    "WireLine",
    "decode_block",
    "decode_line",
    "error_of",
    "stats_of",
    "text_of",
]

_BOM = b"\xef\xbb\xbf"


class _StreamLine(msgspec.Struct, frozen=True, tag_field="type", gc=False):
    pass


class InitLine(_StreamLine, tag="init", frozen=True):
    """The first line of the CLI's output: the session and the model.

    `model` is the model that was requested. The CLI may use another one.
    """

    timestamp: str = ""
    session_id: str | None = None
    model: str | None = None


class MessageLine(_StreamLine, tag="message", frozen=True):
    """A line with a piece of the model's text. The CLI also prints the prompt in such a line, with
    the `role` "user".
    """

    role: str
    content: str
    timestamp: str = ""
    delta: bool = False


class ToolUseLine(_StreamLine, tag="tool_use", frozen=True):
    """A line that reports the start of a tool call. If the model calls several tools in a turn, all
    these lines come before the first result.
    """

    tool_name: str
    tool_id: str
    timestamp: str = ""
    parameters: Any = None


class ToolResultLine(_StreamLine, tag="tool_result", frozen=True):
    """A line with the result of a tool call.

    `output` is the text that the CLI would show to a user, not the result that the model receives.
    For example, `output` is empty for the tool `read_file`, and missing for `write_file`.
    """

    tool_id: str
    status: str
    timestamp: str = ""
    output: Any = None
    error: Any = None


class ErrorLine(_StreamLine, tag="error", frozen=True):
    """A line with a warning or an error during the run. The run continues after it.

    The CLI always writes the field `severity`. Other programs that write this format leave it out.
    """

    message: str
    severity: str = "error"
    timestamp: str = ""


class ResultLine(_StreamLine, tag="result", frozen=True):
    """The last line of a run that finished.

    `error` and `stats` contain plain JSON values, so that an invalid value does not make the line
    invalid. `error_of` and `stats_of` decode these values.
    """

    status: str
    timestamp: str = ""
    error: Any = None
    stats: Any = None


class UnexpectedLine(msgspec.Struct, frozen=True):
    """A line of the CLI's output, or a part of a line, that is not a valid message.

    `why` is "noise" (it is not a message), "unknown_event" (its type is unknown), "protocol" (its
    fields are wrong) or "encoding" (it contains invalid characters).
    """

    why: str
    line: str


WireLine = InitLine | MessageLine | ToolUseLine | ToolResultLine | ErrorLine | ResultLine

_decoder: msgspec.json.Decoder[WireLine] = msgspec.json.Decoder(WireLine)
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
# With strict=False, the decoder accepts unescaped control characters in strings.
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
    """The numbers of tokens that one model used. CLI releases since 0.34 report them."""

    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached: int | None = None


class ProcessStats(msgspec.Struct, frozen=True):
    """The totals of all requests of one CLI process. They include the requests of subagents and of
    the router (the model that chooses the model for each prompt).
    """

    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached: int | None = None
    duration_ms: int | None = None
    tool_calls: int | None = None
    total_cost_usd: float | None = None
    """The cost in dollars. Other programs that write this format report it; the CLI does not."""
    models: dict[str, ModelStats] = {}


def decode_block(block: bytes) -> list[WireLine | UnexpectedLine]:
    """Decode a block of complete lines to messages. An invalid line becomes an `UnexpectedLine`.
    Never raises.

    If all lines are valid, they are decoded in one step, which is faster.
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
    """Decode one line of the CLI's output. Usually the line is one message, but it can also contain
    several JSON objects or other text. Never raises.
    """
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
        # Replace only the bytes that are not UTF-8, and decode the message.
        text = line.decode("utf-8", "replace")
        return [
            UnexpectedLine("encoding", text),
            *(part for part in _decode_unexpected(text) if not _is_noise(part)),
        ]


def _is_noise(part: WireLine | UnexpectedLine) -> bool:
    return isinstance(part, UnexpectedLine) and part.why == "noise"


def _decode_unexpected(text: str) -> list[WireLine | UnexpectedLine]:
    """Decode a line that is not exactly one valid message.

    The line can contain several JSON objects, an object with an unknown type, or other text.
    """
    decoded: list[WireLine | UnexpectedLine] = []
    at = 0
    tries = _MAX_TRIES
    while at < len(text):
        start = text.find("{", at)
        value, end = _object_at(text, start)
        if end is None and start >= 0 and tries and not text.startswith(_MESSAGE_START, start):
            # This brace does not start a JSON object: look for a message after it. Do not search
            # inside a truncated message, which may quote other messages. The number of tries is
            # limited, because each one may read to the end of the line.
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
    """Decode one JSON object as a message. `text` is the JSON, and `value` is the parsed object.

    Invalid characters are replaced. If an optional field is invalid, only the fields in `_NEEDED`
    are decoded. In both cases, the result also contains an `UnexpectedLine` that reports the
    problem. If the object is still not a valid message, the result contains only the
    `UnexpectedLine`.
    """
    kind = value.get("type")
    if not isinstance(kind, str):
        return [UnexpectedLine("noise", text)]
    if kind not in _NEEDED:
        return [UnexpectedLine("unknown_event", text)]
    try:
        return [_decoder.decode(text)]
    except _UNREADABLE:
        pass
    # First try to replace lone surrogates (the CLI truncates tool output at any UTF-16 unit, so
    # half of a character can remain) and raw control characters. Then try without the optional
    # fields, because one of them may have an unexpected type.
    for why, kept in (
        ("encoding", value),
        ("protocol", {name: value[name] for name in _NEEDED[kind] if name in value}),
    ):
        try:
            return [UnexpectedLine(why, text), msgspec.convert(replace_surrogates(kept), WireLine)]
        except _UNREADABLE:
            pass
    return [UnexpectedLine("protocol", text)]


def stats_of(raw: Any) -> ProcessStats | None:
    """Decode `raw`, the field `stats` of a result line. Return None if `raw` is empty or not an
    object.

    Counts that are negative or not whole numbers are left out.
    """
    if not isinstance(raw, dict) or not raw:
        return None
    models = raw.get("models")
    if not isinstance(models, dict):
        models = {}
    return ProcessStats(
        **_counts(raw, ProcessStats),
        total_cost_usd=_amount(raw.get("total_cost_usd")),
        models={
            name: ModelStats(**_counts(counts, ModelStats))
            for name, counts in models.items()
            if isinstance(counts, dict)
        },
    )


_OTHER_FIELDS = {"models", "total_cost_usd"}


def _counts(raw: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    names = set(kind.__struct_fields__) - _OTHER_FIELDS
    return {name: int(value) for name, value in raw.items() if name in names and _is_count(value)}


def _amount(value: Any) -> float | None:
    """Return the value as an amount of dollars; None if the value is not a valid amount."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 10**9 else None


def _is_count(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 <= value < 2**63 and value % 1 == 0


def error_of(raw: Any) -> tuple[str | None, str] | None:
    """Return the type and the message of the error in `raw`, the field `error` of a line. Return
    None if `raw` is None. The type is None if the error has none.

    The CLI writes an object into this field. A string is accepted too, because one document of the
    CLI's specification uses a string.
    """
    if raw is None:
        return None
    if isinstance(raw, dict):
        kind = raw.get("type")
        message = raw.get("message")
        return kind if isinstance(kind, str) else None, message if isinstance(message, str) else text_of(raw)
    return None, text_of(raw)


def text_of(value: Any) -> str:
    """Return a JSON value as text. A string is returned unchanged; any other value is encoded as
    JSON.
    """
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "(a JSON value with too many nested levels to show)"
