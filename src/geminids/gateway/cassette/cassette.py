"""Read a cassette: a JSON Lines file with the requests of a run and their recorded answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from geminids.errors import GeminidsError
from geminids.gateway.cassette.lines import (
    VERSION,
    Cassette,
    CassetteHeader,
    CassetteLine,
    ContentLine,
    Exchange,
    ExchangeLine,
    RequestLine,
    SystemLine,
    ToolsLine,
)
from geminids.gateway.request import Api

__all__ = ["Cassette", "CassetteHeader", "Exchange", "cassette_api", "load_cassette", "read_cassette"]

_RECORD = "Record the cassette again: `geminids run --record FILE`, or `pytest --geminids-record`."
_decoder: msgspec.json.Decoder[CassetteLine] = msgspec.json.Decoder(CassetteLine)


def load_cassette(path: str | Path) -> Cassette:
    """Read a cassette, a file with recorded requests and answers. Raises `GeminidsError` if
    the file cannot be read or is not a valid cassette; the error names the file and, if a line is
    not valid, the line number.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise GeminidsError(f"the cassette {path} does not exist", hint=_RECORD) from None
    except OSError as error:
        raise GeminidsError(
            f"the cassette {path} cannot be read: {error.strerror or error}",
            hint="Check the path and the permissions of the file.",
        ) from None
    return read_cassette(data, str(path))


def cassette_api(path: str | Path) -> Api:
    """Return the API that a cassette (a file with recorded requests and answers) was recorded with:
    `gemini`, `vertex` or `code_assist`.

    Return `gemini` if the file cannot be read or does not begin with a cassette header. This
    function reports no such problem; the replay reports it later.
    """
    try:
        with open(path, "rb") as file:
            return _header(file.readline().removeprefix(b"\xef\xbb\xbf"), str(path)).api
    except (OSError, GeminidsError, msgspec.MsgspecError):
        return "gemini"


def read_cassette(data: bytes, name: str = "cassette") -> Cassette:
    """Decode the content of a cassette, a file with recorded requests and answers. `name` is the
    name of the file in error messages. Raises `GeminidsError` if the content is not valid.

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
                reader.add(_decode(line))
        except (msgspec.MsgspecError, ValueError, RecursionError, _BrokenReference) as error:
            raise GeminidsError(f"{name}:{number}: this line is not valid: {error}", hint=_RECORD) from None
    if header is None:
        raise GeminidsError(f"{name} is not a cassette: it is empty", hint=_RECORD)
    exchanges = tuple(sorted(reader.exchanges, key=lambda exchange: exchange.n))
    return Cassette(name=name, header=header, exchanges=exchanges)


class _BrokenReference(Exception):
    """Raised if a line of a cassette refers to a line that does not come earlier in the file, if
    messages refer to each other in a circle, or if there is a second header.
    """


def _header(line: bytes, name: str) -> CassetteHeader:
    try:
        decoded: Any = json.loads(line)
    except (ValueError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict) or decoded.get("kind") != "cassette":
        raise GeminidsError(f"{name} is not a cassette: its first line has no cassette header", hint=_RECORD)
    version = decoded.get("version", VERSION)
    if isinstance(version, int) and version > VERSION:
        raise GeminidsError(
            f"{name} is a cassette of version {version}, but this geminids reads only up to version {VERSION}",
            hint="Update geminids, or record the cassette again with this version.",
        )
    return msgspec.convert(decoded, CassetteHeader)


def _decode(line: bytes) -> CassetteLine:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        converted: CassetteLine = msgspec.convert(json.loads(line), CassetteLine)
        return converted


class _Reader:
    """Builds exchanges from the lines of a cassette. An exchange is a request with its answer, and
    may refer to earlier lines.
    """

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._values: dict[str, Any] = {}
        self._contents: dict[str, ContentLine] = {}

    def add(self, line: CassetteLine) -> None:
        if isinstance(line, ExchangeLine):
            self.exchanges.append(self._exchange(line))
        elif isinstance(line, ContentLine):
            self._contents[line.id] = line
        elif isinstance(line, (SystemLine, ToolsLine)):
            self._values[line.id] = line.value
        else:
            raise _BrokenReference("the cassette already has a header")

    def _exchange(self, line: ExchangeLine) -> Exchange:
        request = line.request
        return Exchange(
            n=line.n,
            at=line.at,
            verb=request.verb,
            path=request.path,
            body=self._body(request),
            answer=line.answer,
        )

    def _body(self, request: RequestLine) -> Any:
        if request.base64 is not None:
            return base64.b64decode(request.base64)
        if request.text is not None:
            return request.text.encode()
        body = None if request.body is msgspec.UNSET else request.body
        if isinstance(body, dict):
            body = dict(body)
            inner = body
            if request.wrapped and isinstance(body.get("request"), dict):
                inner = body["request"] = dict(body["request"])
            if request.conversation is not None:
                inner["contents"] = self._conversation(request.conversation)
            for field, name in (("systemInstruction", request.system), ("tools", request.tools)):
                if name is not None:
                    inner[field] = _look_up(self._values, name)
        return body

    def _conversation(self, name: str | None) -> list[Any]:
        contents: list[Any] = []
        while name is not None:
            line = _look_up(self._contents, name)
            contents.append(line.content)
            name = line.after
            if len(contents) > len(self._contents):
                raise _BrokenReference(f"the messages before {line.id} refer to each other in a circle")
        return contents[::-1]


def _look_up(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise _BrokenReference(f"it refers to the id {name}, but no earlier line has this id")
    return values[name]
