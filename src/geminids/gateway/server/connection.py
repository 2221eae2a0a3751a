"""One client's connection: HTTP/1.1 in, an upstream's answer out.

Imported late, by the gateway's thread: this is the module that costs anyio and h11.
"""

from __future__ import annotations

import math
from typing import Protocol

import anyio
import h11

from geminids.gateway.forward.connection import Line
from geminids.gateway.request import Request
from geminids.gateway.script.encode import error_body
from geminids.gateway.upstream import Body, Cut, Head, Part, Stall, Upstream, UpstreamFault, Wait, closing
from geminids.log import get_logger

__all__ = ["MOST_BODY", "Connection", "House"]

_log = get_logger("gateway")

MOST_BODY = 256 * 1024 * 1024
# Enough for whatever is refused anyway: a stranger shall not fill the host's memory.
_MOST_OF_STRANGERS = 64 * 1024
# Who has not brought its first request by then has none: nobody with a token is so slow on loopback.
_PATIENCE = 60.0


class House(Protocol):
    """What a connection needs of the gateway that it belongs to."""

    upstream: Upstream

    def upstream_knows(self, target: str, headers: dict[str, str]) -> bool: ...
    def came(self, verb: str, target: str, headers: dict[str, str], body: bytes) -> Request: ...
    def answered(self, request: Request, head: Head) -> None: ...
    def left(self, request: Request) -> None: ...
    def failed(self, what: str) -> None: ...


class _Reset(Exception):
    """The script wants this connection cut."""


class _Left(Exception):
    """The client is not there any more."""


class _TooBig(Exception):
    """More than we take."""


class Connection:
    """Serves requests on one connection until either side ends it."""

    def __init__(self, line: Line, house: House) -> None:
        self._line = line
        self._house = house
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=256 * 1024)
        self._client_left = False
        self._served = False

    async def serve(self) -> None:
        try:
            while await self._serve_one():
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            self._house.failed(f"a client does not speak HTTP: {error}")
            await self._refuse(error.error_status_hint or 400, str(error))
        except _TooBig:
            await self._refuse(413, f"the body is larger than {MOST_BODY} bytes")
        except _Reset:
            self._line.reset()
        except (_Left, OSError):
            pass

    async def _serve_one(self) -> bool:
        """Serve one request; say whether another may follow on this connection."""
        request: Request | None = None
        with anyio.move_on_after(math.inf if self._served else _PATIENCE):
            request = await self._read()
        if request is None:
            return False
        self._served = True
        await self._answer_watched(request)
        if self._client_left:
            self._house.left(request)
            return False
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _read(self) -> Request | None:
        head = await self._next_event()
        if not isinstance(head, h11.Request):
            return None
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        most = (
            MOST_BODY
            if self._house.upstream_knows(head.target.decode("latin-1"), headers)
            else _MOST_OF_STRANGERS
        )
        pieces, size = [], 0
        while isinstance(piece := await self._next_event(), h11.Data):
            pieces.append(piece.data)
            size += len(piece.data)
            if size > most:
                raise _TooBig
        if not isinstance(piece, h11.EndOfMessage):
            return None
        body = b"".join(pieces)
        return self._house.came(head.method.decode(), head.target.decode("latin-1"), headers, body)

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._line.read())
        return event

    async def _answer_watched(self, request: Request) -> None:
        """Answer, and stop as soon as the client goes away."""
        with anyio.CancelScope() as scope, self._line.on_end(scope.cancel):
            try:
                await self._answer(request)
            except _Left:
                self._client_left = True
        self._client_left = self._client_left or scope.cancelled_caught

    async def _answer(self, request: Request) -> None:
        parts = self._house.upstream.answer(request)
        try:
            async with closing(parts):
                async for part in parts:
                    await self._do(part, request)
        except (_Reset, _Left):
            raise
        except UpstreamFault as fault:
            self._house.failed(f"request {request.n}: {fault.kind}: {fault.message}")
            raise _Reset from None
        except Exception as error:
            _log.warning("request %d: writing its answer failed", request.n, error=error)
            self._house.failed(f"request {request.n}: {type(error).__name__}: {error}")
            if self._http.our_state is not h11.SEND_RESPONSE:
                raise _Reset from None
            await self._refuse(500, f"the script failed: {type(error).__name__}: {error}", close=False)
            return
        await self._send(h11.EndOfMessage())

    async def _do(self, part: Part, request: Request) -> None:
        if isinstance(part, Body):
            await self._send(h11.Data(data=part.data))
        elif isinstance(part, Head):
            self._house.answered(request, part)
            await self._send(h11.Response(status_code=part.status, headers=list(part.headers.items())))
        elif isinstance(part, Wait):
            await anyio.sleep(part.seconds)
        elif isinstance(part, Stall):
            await anyio.sleep(math.inf)
        elif isinstance(part, Cut):
            raise _Reset

    async def _refuse(self, status: int, message: str, *, close: bool = True) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = error_body(status, message)
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        if close:
            headers.append(("connection", "close"))
        try:
            await self._send(h11.Response(status_code=status, headers=headers))
            await self._send(h11.Data(data=body))
            await self._send(h11.EndOfMessage())
        except _Left:
            self._client_left = True

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            try:
                await self._line.write(data)
            except OSError:
                raise _Left from None
