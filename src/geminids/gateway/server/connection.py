"""Serve the connection of one client: read HTTP/1.1 requests, and send the answers of the upstream
(the object that answers requests).

The gateway imports this module only when it begins to answer, because importing anyio and h11 is
slow.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Protocol

import anyio
import h11

from geminids.gateway.forward.connection import TcpConnection
from geminids.gateway.request import Request
from geminids.gateway.script.encode import error_body
from geminids.gateway.upstream import Body, Cut, Hang, Head, Part, UpstreamFault, Wait, closing
from geminids.log import get_logger

__all__ = ["MAX_BODY", "Connection", "GatewayHooks"]

_log = get_logger("gateway")

MAX_BODY = 256 * 1024 * 1024
# Limit of the body of a request without a valid token. Such a request is refused, so its body must
# not fill the memory.
_MAX_BODY_WITHOUT_TOKEN = 64 * 1024
# Close a connection that has sent no complete request after this many seconds. A client with a
# token is on the same machine and never takes so long.
_FIRST_REQUEST_SECONDS = 60.0


class GatewayHooks(Protocol):
    """The methods and attributes of the gateway that its connections use."""

    def has_known_token(self, target: str, headers: dict[str, str]) -> bool: ...
    def add_request(self, verb: str, target: str, headers: dict[str, str], body: bytes) -> Request: ...
    def answer(self, request: Request) -> AsyncIterator[Part]: ...
    def answer_started(self, request: Request, head: Head) -> None: ...
    def left(self, request: Request) -> None: ...
    def failed(self, what: str) -> None: ...


class _Reset(Exception):
    """Raised if the gateway must close the connection to the client with a TCP reset (RST)."""


class _ClientLeft(Exception):
    """Raised when the client has disconnected."""


class _TooBig(Exception):
    """Raised when the body of a request is larger than the limit."""


class Connection:
    """Serves the requests of a client on one connection, until either side closes the
    connection.
    """

    def __init__(self, tcp: TcpConnection, gateway: GatewayHooks) -> None:
        self._tcp = tcp
        self._gateway = gateway
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=256 * 1024)
        self._client_left = False
        self._has_served = False

    async def serve(self) -> None:
        try:
            while await self._serve_request():
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            self._gateway.failed(f"a client sent invalid HTTP: {error}")
            await self._refuse(error.error_status_hint or 400, str(error))
        except _TooBig as error:
            await self._refuse(413, str(error))
        except _Reset:
            self._tcp.reset()
        except (_ClientLeft, OSError):
            pass

    async def _serve_request(self) -> bool:
        """Read and answer one request. Return whether the client may send another request on this
        connection.
        """
        request: Request | None = None
        with anyio.move_on_after(math.inf if self._has_served else _FIRST_REQUEST_SECONDS):
            request = await self._read()
        if request is None:
            return False
        self._has_served = True
        await self._answer_while_connected(request)
        if self._client_left:
            self._gateway.left(request)
            return False
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _read(self) -> Request | None:
        head = await self._next_event()
        if not isinstance(head, h11.Request):
            return None
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        limit = (
            MAX_BODY
            if self._gateway.has_known_token(head.target.decode("latin-1"), headers)
            else _MAX_BODY_WITHOUT_TOKEN
        )
        pieces, size = [], 0
        while isinstance(piece := await self._next_event(), h11.Data):
            pieces.append(piece.data)
            size += len(piece.data)
            if size > limit:
                raise _TooBig(f"the body of the request is larger than {limit} bytes")
        if not isinstance(piece, h11.EndOfMessage):
            return None
        body = b"".join(pieces)
        return self._gateway.add_request(head.method.decode(), head.target.decode("latin-1"), headers, body)

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._tcp.read())
        return event

    async def _answer_while_connected(self, request: Request) -> None:
        """Send the answer to a request. If the client disconnects, stop immediately and set
        `_client_left`.
        """
        with anyio.CancelScope() as scope, self._tcp.on_end(scope.cancel):
            try:
                await self._answer(request)
            except _ClientLeft:
                self._client_left = True
        self._client_left = self._client_left or scope.cancelled_caught

    async def _answer(self, request: Request) -> None:
        parts = self._gateway.answer(request)
        try:
            async with closing(parts):
                async for part in parts:
                    await self._send_part(part, request)
        except (_Reset, _ClientLeft):
            raise
        except UpstreamFault as fault:
            self._gateway.failed(f"request {request.n}: {fault.kind}: {fault.message}")
            raise _Reset from None
        except Exception as error:
            _log.warning("the answer to request %d could not be written", request.n, error=error)
            self._gateway.failed(f"the answer to request {request.n} failed: {type(error).__name__}: {error}")
            if self._http.our_state is not h11.SEND_RESPONSE:
                raise _Reset from None
            await self._refuse(500, f"the script failed: {type(error).__name__}: {error}", close=False)
            return
        await self._send(h11.EndOfMessage())

    async def _send_part(self, part: Part, request: Request) -> None:
        if isinstance(part, Body):
            await self._send(h11.Data(data=part.data))
        elif isinstance(part, Head):
            self._gateway.answer_started(request, part)
            await self._send(h11.Response(status_code=part.status, headers=list(part.headers.items())))
        elif isinstance(part, Wait):
            await anyio.sleep(part.seconds)
        elif isinstance(part, Hang):
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
        except _ClientLeft:
            self._client_left = True

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            try:
                await self._tcp.write(data)
            except OSError:
                raise _ClientLeft from None
