"""The HTTP client of the gateway. All runs of this process share its connections to the API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator

import h11
from anyio.lowlevel import RunVar

from geminids.gateway.forward.connect import open_connection
from geminids.gateway.forward.connection import TcpConnection
from geminids.gateway.forward.network_settings import Address, NetworkSettings
from geminids.gateway.upstream import UpstreamFault

__all__ = ["Client", "client"]

_MAX_HEAD = 256 * 1024
# Close a connection that was idle for this many seconds. Google closes idle connections after some
# minutes, proxies earlier.
_IDLE_SECONDS = 50
# The server may close a connection that was idle for more seconds than this just when we send a
# request. Such a request is sent again.
_SAFE_IDLE_SECONDS = 1.0
# Up to this size, the head and the body of a request are written together, because copying is
# cheaper than a second packet.
_JOINED = 64 * 1024

_running: RunVar[Client] = RunVar("geminids-client")


def client() -> Client:
    """Return the HTTP client of the current event loop. The client closes its connections when the
    event loop ends.
    """
    try:
        return _running.get()
    except LookupError:
        new = Client()
        _running.set(new)
        return new


class Client:
    """An HTTP client. It sends several requests over the same connection, one after the other. A
    connection is used again only if the last answer on it is complete.
    """

    def __init__(self) -> None:
        self._idle: dict[tuple[Address, NetworkSettings], list[tuple[float, TcpConnection]]] = {}
        self._cleaner = asyncio.get_running_loop().create_task(self._clean_up())

    async def exchange(
        self, address: Address, network: NetworkSettings, head: h11.Request, body: bytes
    ) -> AsyncGenerator[h11.Response | bytes, None]:
        """Send a request to `address`. Yield the head of the answer, then the pieces of its body as
        they arrive. Raises `UpstreamFault` if there is no complete answer.

        If the generator is closed early (`aclose`, or a cancelled task), the request is aborted and
        the connection is closed.
        """
        exchange = await self._start(address, network, head, body)
        del body  # free its memory while the answer arrives
        try:
            assert exchange.response is not None
            yield exchange.response
            async for piece in exchange.pieces():
                yield piece
        finally:
            if exchange.is_reusable and exchange.tcp.alive:
                self._idle.setdefault((address, network), []).append((time.monotonic(), exchange.tcp))
            else:
                exchange.tcp.drop()

    async def _start(
        self, address: Address, network: NetworkSettings, head: h11.Request, body: bytes
    ) -> _HttpExchange:
        kept, idle = self._take_idle(address, network)
        if kept is not None:
            try:
                return await _send(_HttpExchange(kept), head, body)
            except _NoResponse as failure:
                # The server closed the idle connection before it read our request: send the request
                # again.
                if idle < _SAFE_IDLE_SECONDS:
                    raise failure.fault from None
        try:
            return await _send(_HttpExchange(await open_connection(address, network)), head, body)
        except _NoResponse as failure:
            raise failure.fault from None

    def _take_idle(self, address: Address, network: NetworkSettings) -> tuple[TcpConnection | None, float]:
        connections = self._idle.get((address, network), [])
        while connections:
            since, tcp = connections.pop()
            idle = time.monotonic() - since
            if tcp.alive and idle < _IDLE_SECONDS:
                return tcp, idle
            tcp.drop()
        return None, 0

    async def _clean_up(self) -> None:
        """While the event loop runs, close connections that have not been used for 50 seconds. When
        the loop ends, close all unused connections.
        """
        try:
            while True:
                await asyncio.sleep(_IDLE_SECONDS / 2)
                self._close_idle(time.monotonic() - _IDLE_SECONDS)
        finally:
            self._close_idle(float("inf"))

    def _close_idle(self, before: float) -> None:
        for connections in self._idle.values():
            for kept in [kept for kept in connections if kept[0] < before or not kept[1].alive]:
                connections.remove(kept)
                kept[1].drop()


class _NoResponse(Exception):
    """Raised if the connection ends before the first byte of the answer arrives. The client may
    then send the request again on a new connection. If it does not, it raises the error `fault`.
    """

    def __init__(self, fault: UpstreamFault) -> None:
        self.fault = fault


async def _send(exchange: _HttpExchange, head: h11.Request, body: bytes) -> _HttpExchange:
    try:
        await exchange.send(head, body)
        await exchange.read_head()
    except BaseException:
        exchange.tcp.drop()
        raise
    return exchange


class _HttpExchange:
    """One request and its answer on one connection."""

    def __init__(self, tcp: TcpConnection) -> None:
        self.tcp = tcp
        self.response: h11.Response | None = None
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
        self._has_received = False

    @property
    def is_reusable(self) -> bool:
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def send(self, head: h11.Request, body: bytes) -> None:
        first = self._http.send(head) or b""
        self._http.send(h11.Data(data=body))  # only for h11's state; the bytes are written below
        self._http.send(h11.EndOfMessage())
        try:
            if len(body) > _JOINED:
                await self.tcp.write(first)
                await self.tcp.write(body)
            else:
                await self.tcp.write(first + body)
        except OSError:
            pass  # Read the answer anyway: the server may answer before it has read the whole request (413).

    async def read_head(self) -> None:
        try:
            while not isinstance(event := self._http.next_event(), h11.Response):
                if event is h11.NEED_DATA:
                    await self._receive()
        except h11.RemoteProtocolError as error:
            raise UpstreamFault("protocol", f"the API's answer is not valid HTTP: {error}") from None
        self.response = event

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the answer's body as they arrive. If an error occurs, the pieces that
        arrived before the error are yielded first, and then `UpstreamFault` is raised.
        """
        while True:
            pieces, fault, is_complete = self._next_pieces()
            if pieces:
                yield b"".join(pieces)
            if fault is not None:
                raise fault
            if is_complete:
                return
            await self._receive()

    def _next_pieces(self) -> tuple[list[bytes], UpstreamFault | None, bool]:
        pieces: list[bytes] = []
        try:
            while isinstance(event := self._http.next_event(), h11.Data):
                pieces.append(event.data)
        except h11.RemoteProtocolError as error:
            if self._http.trailing_data[1]:  # the server has closed the connection
                return pieces, UpstreamFault("cut", f"the API's answer was cut off: {error}"), False
            return (
                pieces,
                UpstreamFault("protocol", f"the rest of the API's answer is not valid HTTP: {error}"),
                False,
            )
        return pieces, None, event is not h11.NEED_DATA

    async def _receive(self) -> None:
        try:
            data = await self.tcp.read()
        except OSError as error:
            fault = UpstreamFault("cut", f"the connection to the API broke: {error}")
            raise fault if self._has_received else _NoResponse(fault) from None
        if not data and not self._has_received:
            raise _NoResponse(UpstreamFault("cut", "the API closed the connection without an answer"))
        self._has_received = True
        self._http.receive_data(data)
