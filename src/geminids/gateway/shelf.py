"""Exchanges to lines of a cassette, with nothing written twice. Pure."""

from __future__ import annotations

import hashlib
from typing import Any

from geminids.gateway.cassette_lines import (
    Exchange,
    ExchangeLine,
    RequestLine,
    Said,
    System,
    Tools,
    bytes_as,
    to_line,
)
from geminids.gateway.request import unwrap

__all__ = ["Shelf"]


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
            to_line(ExchangeLine(n=exchange.n, at=exchange.at, request=request, answer=exchange.answer))
        )
        return lines

    def _request(self, exchange: Exchange, lines: list[bytes]) -> RequestLine:
        verb, path, body = exchange.verb, exchange.path, exchange.body
        if isinstance(body, bytes):
            return RequestLine(verb=verb, path=path, **bytes_as(body))
        if not isinstance(body, dict):
            return RequestLine(verb=verb, path=path, body=body)
        wrapped = unwrap(body) is not body
        rest = dict(unwrap(body))
        ids: dict[str, str | None] = {}
        for field, name, kind in (("systemInstruction", "system", System), ("tools", "tools", Tools)):
            if rest.get(field) is not None:
                ids[name] = self._put(kind, rest.pop(field), lines)
        contents = rest.get("contents")
        if isinstance(contents, list) and contents:
            del rest["contents"]
            last: str | None = None
            for content in contents:
                last = self._say(content, last, lines)
            ids["conversation"] = last
        if wrapped:
            rest = {**body, "request": rest}
        return RequestLine(verb=verb, path=path, body=rest, wrapped=wrapped, **ids)

    def _put(self, kind: type[System] | type[Tools], value: Any, lines: list[bytes]) -> str:
        name = _digest(value)
        if name not in self._there:
            self._there.add(name)
            lines.append(to_line(kind(name, value)))
        return name

    def _say(self, content: Any, after: str | None, lines: list[bytes]) -> str:
        name = _digest([after, content])
        if name not in self._there:
            self._there.add(name)
            lines.append(to_line(Said(name, content, after)))
        return name


def _digest(value: Any) -> str:
    return hashlib.sha256(to_line(value)).hexdigest()[:12]
