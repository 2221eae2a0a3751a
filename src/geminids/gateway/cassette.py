"""A cassette: the requests and answers of a run as readable text, one JSON object a line."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from geminids.errors import GeminidsError

__all__ = [
    "VERSION",
    "Answer",
    "Cassette",
    "CassetteHeader",
    "End",
    "Exchange",
    "Shelf",
    "bytes_as",
    "load_cassette",
    "read_cassette",
    "to_line",
]

VERSION = 1
End = Literal["whole", "cut", "stalled", "left", "fault"]
_RECORD = "Record it again: geminids run --record FILE, or pytest --geminids-record."


class CassetteHeader(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cassette", tag_field="kind"
):
    """The first line: what made this cassette."""

    version: int = VERSION
    made: str | None = None
    cli: str | None = None
    model: str | None = None
    geminids: str | None = None


class _System(msgspec.Struct, frozen=True, tag="system", tag_field="kind"):
    id: str
    value: Any


class _Tools(msgspec.Struct, frozen=True, tag="tools", tag_field="kind"):
    id: str
    value: Any


class _Said(msgspec.Struct, frozen=True, omit_defaults=True, tag="said", tag_field="kind"):
    """One content of a conversation, behind another: a conversation is named by its last one."""

    id: str
    content: Any
    after: str | None = None


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    verb: str = "POST"
    path: str
    conversation: str | None = None
    system: str | None = None
    tools: str | None = None
    body: Any = msgspec.UNSET
    text: str | None = None
    base64: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came back. One of `events` (server-sent ones), `json`, `text` and `base64` is the body; `rest` is what came
    of an event that was cut. `status` is None where nothing came."""

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


class _Exchange(msgspec.Struct, frozen=True, kw_only=True, tag="exchange", tag_field="kind"):
    n: int
    at: float
    request: _Request
    answer: Answer


_Line = CassetteHeader | _System | _Tools | _Said | _Exchange
_decoder: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer. `body` is what JSON said, or text, or bytes; `at` is in Unix seconds."""

    n: int
    at: float
    verb: str
    path: str
    body: Any
    answer: Answer


class Cassette(msgspec.Struct, frozen=True, kw_only=True):
    """All of a cassette, its exchanges in the order in which their requests came."""

    name: str
    header: CassetteHeader
    exchanges: tuple[Exchange, ...]


class Shelf:
    """Turns exchanges into lines, and writes nothing twice that requests repeat: the prompts, the tools, the
    conversation so far."""

    def __init__(self) -> None:
        self._there: set[str] = set()

    def lines(self, exchange: Exchange) -> list[bytes]:
        """The lines of an exchange, those first that it refers to."""
        lines: list[bytes] = []
        request = self._request(exchange, lines)
        lines.append(
            to_line(_Exchange(n=exchange.n, at=exchange.at, request=request, answer=exchange.answer))
        )
        return lines

    def _request(self, exchange: Exchange, lines: list[bytes]) -> _Request:
        verb, path, body = exchange.verb, exchange.path, exchange.body
        if isinstance(body, bytes):
            return _Request(verb=verb, path=path, **bytes_as(body))
        if not isinstance(body, dict):
            return _Request(verb=verb, path=path, body=body)
        rest = dict(body)
        ids: dict[str, str | None] = {}
        for field, name, kind in (("systemInstruction", "system", _System), ("tools", "tools", _Tools)):
            if rest.get(field) is not None:
                ids[name] = self._put(kind, rest.pop(field), lines)
        contents = rest.get("contents")
        if isinstance(contents, list) and contents:
            del rest["contents"]
            last: str | None = None
            for content in contents:
                last = self._say(content, last, lines)
            ids["conversation"] = last
        return _Request(verb=verb, path=path, body=rest, **ids)

    def _put(self, kind: type[_System] | type[_Tools], value: Any, lines: list[bytes]) -> str:
        name = _digest(value)
        if name not in self._there:
            self._there.add(name)
            lines.append(to_line(kind(name, value)))
        return name

    def _say(self, content: Any, after: str | None, lines: list[bytes]) -> str:
        name = _digest([after, content])
        if name not in self._there:
            self._there.add(name)
            lines.append(to_line(_Said(name, content, after)))
        return name


def _digest(value: Any) -> str:
    return hashlib.sha256(to_line(value)).hexdigest()[:12]


def to_line(value: Any) -> bytes:
    """A value as one line of JSON."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        # Half a character, which the CLI sends as it is: escaped it can be written.
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode() + b"\n"


def bytes_as(data: bytes) -> dict[str, str]:
    """Bytes as the field that can hold them."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def load_cassette(path: str | Path) -> Cassette:
    """Read a cassette file. Raises one `GeminidsError` that names the file, and the line where it is broken."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise GeminidsError(f"there is no cassette {path}", hint=_RECORD) from None
    except OSError as error:
        raise GeminidsError(f"the cassette {path} cannot be read: {error.strerror or error}") from None
    return read_cassette(data, str(path))


def read_cassette(data: bytes, name: str = "cassette") -> Cassette:
    """Read a cassette.

    >>> read_cassette(b'{"kind": "cassette", "version": 1, "cli": "0.61.0"}').header.cli
    '0.61.0'
    """
    header: CassetteHeader | None = None
    reader = _Reader()
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            if header is None:
                header = _header(line, name)
            else:
                reader.take(_decoded(line))
        except (msgspec.MsgspecError, ValueError, RecursionError, _Dangling) as error:
            raise GeminidsError(f"{name}:{number}: this line is broken: {error}", hint=_RECORD) from None
    if header is None:
        raise GeminidsError(f"{name} is no cassette: there is nothing in it", hint=_RECORD)
    exchanges = tuple(sorted(reader.exchanges, key=lambda exchange: exchange.n))
    return Cassette(name=name, header=header, exchanges=exchanges)


class _Dangling(Exception):
    """A line that refers to one that is not there."""


def _header(line: bytes, name: str) -> CassetteHeader:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != "cassette":
        raise GeminidsError(f"{name} is no cassette: its first line does not say so", hint=_RECORD)
    version = found.get("version", VERSION)
    if isinstance(version, int) and version > VERSION:
        raise GeminidsError(
            f"{name} is a cassette of version {version}, and this geminids reads up to {VERSION}",
            hint="Update geminids, or record it again.",
        )
    return msgspec.convert(found, CassetteHeader)


def _decoded(line: bytes) -> _Line:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        converted: _Line = msgspec.convert(json.loads(line), _Line)
        return converted


class _Reader:
    """Puts lines together again."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._values: dict[str, Any] = {}
        self._said: dict[str, _Said] = {}

    def take(self, line: _Line) -> None:
        if isinstance(line, _Exchange):
            self.exchanges.append(self._exchange(line))
        elif isinstance(line, _Said):
            self._said[line.id] = line
        elif isinstance(line, (_System, _Tools)):
            self._values[line.id] = line.value
        else:
            raise _Dangling("a second header")

    def _exchange(self, line: _Exchange) -> Exchange:
        request = line.request
        return Exchange(
            n=line.n,
            at=line.at,
            verb=request.verb,
            path=request.path,
            body=self._body(request),
            answer=line.answer,
        )

    def _body(self, request: _Request) -> Any:
        if request.base64 is not None:
            return base64.b64decode(request.base64)
        if request.text is not None:
            return request.text.encode()
        body = None if request.body is msgspec.UNSET else request.body
        if isinstance(body, dict):
            body = dict(body)
            if request.conversation is not None:
                body["contents"] = self._conversation(request.conversation)
            for field, name in (("systemInstruction", request.system), ("tools", request.tools)):
                if name is not None:
                    body[field] = _found(self._values, name)
        return body

    def _conversation(self, name: str | None) -> list[Any]:
        contents: list[Any] = []
        while name is not None:
            said = _found(self._said, name)
            contents.append(said.content)
            name = said.after
            if len(contents) > len(self._said):
                raise _Dangling(f"the conversation before {said.id} has no beginning")
        return contents[::-1]


def _found(kept: Mapping[str, Any], name: str) -> Any:
    if name not in kept:
        raise _Dangling(f"nothing above it has the id {name}")
    return kept[name]
