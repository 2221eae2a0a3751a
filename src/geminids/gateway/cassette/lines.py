"""The types of lines in a cassette file, and an encoder that converts exchanges to these lines. An
exchange is a request with its answer. This module does no I/O.
"""

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
    """The first line of a cassette, a file with recorded answers. It contains the time of the
    recording (`made`), and the CLI release, the model and the API that were used.
    """

    version: int = VERSION
    made: str | None = None
    cli: str | None = None
    model: str | None = None
    api: Api = "gemini"
    """The API that the CLI used. A replay must use the same API."""


class SystemLine(msgspec.Struct, frozen=True, tag="system", tag_field="kind"):
    id: str
    value: Any


class ToolsLine(msgspec.Struct, frozen=True, tag="tools", tag_field="kind"):
    id: str
    value: Any


class ContentLine(msgspec.Struct, frozen=True, omit_defaults=True, tag="content", tag_field="kind"):
    """A line of a cassette with one message of a conversation.

    `after` is the id of the previous message; None if this is the first message. Each message leads
    to the one before it, so the id of the last message identifies the whole conversation.
    """

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
    """Whether the conversation, the system instruction and the tools belong in `body.request`, as
    in Code Assist."""
    body: Any = msgspec.UNSET
    text: str | None = None
    base64: str | None = None


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recorded answer of the API.

    The body is in one of these fields: `events` (server-sent events), `json`, `text` or `base64`.
    `rest` is the text of an incomplete last event. `status` is the HTTP status; None if there was
    no answer.

    `end` says how the answer ended: `whole` (the answer is complete), `cut` (the connection broke),
    `stalled` (no more data arrived), `left` (the client disconnected), or `fault` (an error, which
    the fields `fault` and `message` describe). `first_ms` and `ms` are the times in milliseconds
    until the first byte and until the end of the answer.
    """

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
    """One recorded request with its answer.

    `n` is the number of the request, from 1. `at` is the time of the request in Unix seconds.
    `body` is the body of the request, as decoded JSON or as bytes.
    """

    n: int
    at: float
    verb: str
    path: str
    body: Any
    answer: RecordedAnswer


class Cassette(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a cassette, a file with recorded answers. `exchanges` contains the requests
    with their answers, in the order of the requests.
    """

    name: str
    header: CassetteHeader
    exchanges: tuple[Exchange, ...]


def to_line(value: Any) -> bytes:
    """Encode a value as one line of JSON, with the newline."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        # The CLI may send half of a surrogate pair. msgspec cannot encode it; `json` escapes it.
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode() + b"\n"


def bytes_field(data: bytes) -> dict[str, Any]:
    """Return the bytes as a dict with the field `text`, or with the field `base64` if the bytes are
    not valid UTF-8.
    """
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


class CassetteEncoder:
    """Converts exchanges (each is a request with its answer) to lines of a cassette.

    Most requests repeat the system instruction, the tools and the conversation of earlier requests.
    Therefore each of these parts is written only once, and later exchanges refer to it by its id.
    """

    def __init__(self) -> None:
        self._written: set[str] = set()

    def lines(self, exchange: Exchange) -> list[bytes]:
        """Return the lines to add to the cassette for an exchange (a request with its answer). The
        last line is the exchange itself. Before it come the lines to which it refers, except those
        that were already written.
        """
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
