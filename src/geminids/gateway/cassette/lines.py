"""The lines of a cassette, and the encoder that turns exchanges into lines. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, Literal

import msgspec

from geminids.gateway.request import Api, unwrap

__all__ = [
    "VERSION",
    "Cassette",
    "CassetteEncoder",
    "CassetteHeader",
    "CassetteLine",
    "ContentLine",
    "End",
    "Exchange",
    "ExchangeLine",
    "RecordedAnswer",
    "RequestLine",
    "SystemLine",
    "ToolsLine",
    "bytes_field",
    "to_line",
]

VERSION = 1
End = Literal["whole", "cut", "stalled", "left", "fault"]


class CassetteHeader(msgspec.Struct, frozen=True, kw_only=True, tag="cassette", tag_field="kind"):
    """The first line: when, and with which CLI and model, the cassette was recorded."""

    version: int = VERSION
    made: str | None = None
    cli: str | None = None
    model: str | None = None
    api: Api = "gemini"
    """The form of the API that the CLI used; a replay must use the same."""


class SystemLine(msgspec.Struct, frozen=True, tag="system", tag_field="kind"):
    id: str
    value: Any


class ToolsLine(msgspec.Struct, frozen=True, tag="tools", tag_field="kind"):
    id: str
    value: Any


class ContentLine(msgspec.Struct, frozen=True, omit_defaults=True, tag="said", tag_field="kind"):
    """One content of a conversation. `after` is the id of the content before it; the id of the last
    content identifies the conversation."""

    id: str
    content: Any
    after: str | None = None


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    verb: str = "POST"
    path: str
    conversation: str | None = None
    system: str | None = None
    tools: str | None = None
    wrapped: bool = False
    """Conversation, system and tools belong in `body.request` (Code Assist)."""
    body: Any = msgspec.UNSET
    text: str | None = None
    base64: str | None = None


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer. The body is one of `events` (server-sent events), `json`, `text` and `base64`;
    `rest` is the beginning of an event that was cut. `status` is None if no answer came."""

    status: int | None = None
    type: str = ""
    retry_after: str | None = None
    events: list[Any] | None = None
    json: Any = msgspec.UNSET
    text: str | None = None
    base64: str | None = None
    rest: str = ""
    end: End = "whole"
    fault: str | None = None
    message: str | None = None
    first_ms: int | None = None
    ms: int | None = None


class ExchangeLine(msgspec.Struct, frozen=True, kw_only=True, tag="exchange", tag_field="kind"):
    n: int
    at: float
    request: RequestLine
    answer: RecordedAnswer


CassetteLine = CassetteHeader | SystemLine | ToolsLine | ContentLine | ExchangeLine


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer. `body` is decoded JSON, text or bytes; `at` is in Unix
    seconds."""

    n: int
    at: float
    verb: str
    path: str
    body: Any
    answer: RecordedAnswer


class Cassette(msgspec.Struct, frozen=True, kw_only=True):
    """A whole cassette. The exchanges are in the order of their requests."""

    name: str
    header: CassetteHeader
    exchanges: tuple[Exchange, ...]


def to_line(value: Any) -> bytes:
    """A value as one line of JSON."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        # The CLI sends half of a surrogate pair unchanged. `json` escapes it.
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode() + b"\n"


def bytes_field(data: bytes) -> dict[str, Any]:
    """Bytes as a `text` field, or as `base64` if they are not UTF-8."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


class CassetteEncoder:
    """Turns exchanges into lines. Writes only once what requests repeat: system instruction, tools,
    conversation."""

    def __init__(self) -> None:
        self._written: set[str] = set()

    def lines(self, exchange: Exchange) -> list[bytes]:
        """The lines of an exchange. Lines that it refers to come first."""
        lines: list[bytes] = []
        request = self._request(exchange, lines)
        lines.append(
            to_line(ExchangeLine(n=exchange.n, at=exchange.at, request=request, answer=exchange.answer))
        )
        return lines

    def _request(self, exchange: Exchange, lines: list[bytes]) -> RequestLine:
        verb, path, body = exchange.verb, exchange.path, exchange.body
        if isinstance(body, bytes):
            return RequestLine(verb=verb, path=path, **bytes_field(body))
        if not isinstance(body, dict):
            return RequestLine(verb=verb, path=path, body=body)
        wrapped = unwrap(body) is not body
        rest = dict(unwrap(body))
        ids: dict[str, str | None] = {}
        for field, name, kind in (("systemInstruction", "system", SystemLine), ("tools", "tools", ToolsLine)):
            if rest.get(field) is not None:
                ids[name] = self._add_value(kind, rest.pop(field), lines)
        contents = rest.get("contents")
        if isinstance(contents, list) and contents:
            del rest["contents"]
            last: str | None = None
            for content in contents:
                last = self._add_content(content, last, lines)
            ids["conversation"] = last
        if wrapped:
            rest = {**body, "request": rest}
        return RequestLine(verb=verb, path=path, body=rest, wrapped=wrapped, **ids)

    def _add_value(self, kind: type[SystemLine] | type[ToolsLine], value: Any, lines: list[bytes]) -> str:
        name = _digest(value)
        if name not in self._written:
            self._written.add(name)
            lines.append(to_line(kind(name, value)))
        return name

    def _add_content(self, content: Any, after: str | None, lines: list[bytes]) -> str:
        name = _digest([after, content])
        if name not in self._written:
            self._written.add(name)
            lines.append(to_line(ContentLine(name, content, after)))
        return name


def _digest(value: Any) -> str:
    return hashlib.sha256(to_line(value)).hexdigest()[:12]
