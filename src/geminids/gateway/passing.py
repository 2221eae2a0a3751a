"""The upstream that passes requests on to the real API, with the real key in place of the token."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from geminids.errors import GeminidsError
from geminids.gateway.encode import error_body
from geminids.gateway.request import Request
from geminids.gateway.upstream import Body, Head, Part, UpstreamFault
from geminids.gateway.way import Way, read_base_url

if TYPE_CHECKING:
    import h11

__all__ = ["GOOGLE", "Passing"]

GOOGLE = "https://generativelanguage.googleapis.com"

_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
# Ours to write: where it goes, how long it is, and that it comes back in a form in which tokens can be read.
# (And no header may make another method of a POST.)
_OURS = frozenset(("host", "content-length", "accept-encoding", "expect", "x-http-method-override"))
_SHORTEST = 6
_IN_QUERY = re.compile(r"(?<=[?&])key=[^&]*&?")


class Passing:
    """Forwards to one API with one key. All of them in a process share their connections."""

    wants_body = False
    """A request's body may go once the answer has begun (see `leased`)."""

    def __init__(self, base_url: str, key: str, way: Way) -> None:
        """Raises `GeminidsError` where the URL is none that the CLI would take, or the key cannot be sent."""
        self._address, self._prefix = read_base_url(base_url)
        self._key = _sendable(key)
        # A few letters, a test server's key, stand in every answer.
        self._hidden = self._key if len(self._key) >= _SHORTEST else None
        self._way = way

    def __repr__(self) -> str:
        return f"Passing({self._address.named})"

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        # Late: made on the way to a spawn, used in the gateway's thread.
        from geminids.gateway.client import client

        exchange = client().exchange(self._address, self._way, self._head(request), request.raw)
        hiding: _Hiding | None = None
        try:
            async with aclosing(exchange):
                async for told in exchange:
                    if isinstance(told, bytes):
                        yield Body(told if hiding is None else hiding.heard(told))
                    elif (target := _redirected(told)) is not None:
                        for part in _no_further(target):
                            yield part
                        return
                    else:
                        hides = self._hidden is not None and told.status_code >= 400
                        hiding = _Hiding(self._key) if hides else None
                        yield Head(told.status_code, _headers_of(told, self._hidden), "passed on")
        except UpstreamFault:
            if hiding is not None:
                yield Body(hiding.rest)
            raise
        if hiding is not None:
            yield Body(hiding.rest)

    def _head(self, request: Request) -> h11.Request:
        import h11

        headers = [("Host", self._address.host_header)]
        named = request.headers.get("connection", "").lower().replace(" ", "").split(",")
        for name, value in request.headers.items():
            if name not in _HOP_BY_HOP and name not in _OURS and name not in named:
                headers += self._with_key(name, value, request)
        path = _IN_QUERY.sub("", request.path).rstrip("?&")
        by_bearer = "authorization" in request.headers and request.authorization is None
        if path != request.path and not by_bearer and "x-goog-api-key" not in request.headers:
            # Never in the URL, which servers give back: as where to upload to, or in a text that they have logged.
            headers.append(("x-goog-api-key", self._key))
        headers.append(("accept-encoding", "identity"))
        if request.raw or request.verb == "POST":
            headers.append(("content-length", str(len(request.raw))))
        return h11.Request(method=request.verb, target=self._prefix + path, headers=headers)

    def _with_key(self, name: str, value: str, request: Request) -> list[tuple[str, str]]:
        """A header as it goes out; none where it holds the token in a place that is no place for a key."""
        if name == "x-goog-api-key":
            return [(name, self._key)]
        if name == "authorization":
            return [(name, request.authorization or f"Bearer {self._key}")]
        return [] if request.key and request.key in value else [(name, value)]


class _Hiding:
    """Puts stars in place of the key: Google names it in some errors (`Consumer 'api_key:…' has been suspended`)."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self.rest = b""
        """What has been heard and not told yet, since it can be the beginning of the key."""

    def heard(self, data: bytes) -> bytes:
        data = (self.rest + data).replace(self._key, b"*" * len(self._key))
        told = max(0, len(data) - len(self._key) + 1)
        self.rest = data[told:]
        return data[:told]


def _sendable(key: str) -> str:
    # An HTTP library would show the key in its own error.
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise GeminidsError(
            "the API key is empty, or has characters that no key has",
            hint="Look at where it comes from: a key is one word of letters, digits, - and _.",
        )
    return key


def _headers_of(response: h11.Response, key: str | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if key is not None:
            value = value.replace(key, "***")
        if name not in _HOP_BY_HOP:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _redirected(response: h11.Response) -> str | None:
    if not 300 <= response.status_code <= 399:
        return None
    return next((value.decode("latin-1") for name, value in response.headers if name == b"location"), None)


def _no_further(target: str) -> tuple[Part, ...]:
    """The CLI would follow a redirect by itself, past us, with the conversation and the token."""
    shown = target.partition("?")[0]
    message = (
        f"The API answered with a redirect to {shown}, which is not followed: "
        "if that is where the API is, name it in GOOGLE_GEMINI_BASE_URL."
    )
    body = error_body(400, message)
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return Head(400, headers, "a redirect"), Body(body)
