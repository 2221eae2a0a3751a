"""The HTTP client of the gateway: connections to APIs, kept alive and shared by all runs of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator

import h11
from anyio.lowlevel import RunVar

from geminids.gateway.forward.connect import dial
from geminids.gateway.forward.connection import Line
from geminids.gateway.forward.network_settings import Address, Way
from geminids.gateway.upstream import UpstreamFault

__all__ = ["Client", "client"]

_MOST_HEAD = 256 * 1024
# Google closes idle connections after some minutes, proxies earlier.
_IDLE_SECONDS = 50
# A connection that lay idle for so long may be closed by the server in the very moment in which we use it.
_DOUBTFUL_SECONDS = 1.0
# Up to here head and body are one piece: copying is cheaper than a second packet.
_JOINED = 64 * 1024

_running: RunVar[Client] = RunVar("geminids-client")


def client() -> Client:
    """The client of this event loop; it ends with the loop."""
    try:
        return _running.get()
    except LookupError:
        made = Client()
        _running.set(made)
        return made


class Client:
    """Sends requests, and keeps the connections on which an answer came to its end."""

    def __init__(self) -> None:
        self._idle: dict[tuple[Address, Way], list[tuple[float, Line]]] = {}
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def exchange(
        self, address: Address, way: Way, head: h11.Request, body: bytes
    ) -> AsyncGenerator[h11.Response | bytes, None]:
        """The head of the answer, then its body in pieces as they come. Raises `UpstreamFault`.

        Whoever stops in the middle (`aclose`, a cancelled task) ends the request: the connection is closed.
        """
        talk = await self._begun(address, way, head, body)
        del body  # not held while the answer comes
        try:
            assert talk.response is not None
            yield talk.response
            async for piece in talk.pieces():
                yield piece
        finally:
            if talk.over_well and talk.line.alive:
                self._idle.setdefault((address, way), []).append((time.monotonic(), talk.line))
            else:
                talk.line.drop()

    async def _begun(self, address: Address, way: Way, head: h11.Request, body: bytes) -> _Talk:
        kept, idle = self._kept(address, way)
        if kept is not None:
            try:
                return await _answered(_Talk(kept), head, body)
            except _Unheard as unheard:
                # Closed while our request was under way: nobody has read it, so it is sent once more.
                if idle < _DOUBTFUL_SECONDS:
                    raise unheard.fault from None
        try:
            return await _answered(_Talk(await dial(address, way)), head, body)
        except _Unheard as unheard:
            raise unheard.fault from None

    def _kept(self, address: Address, way: Way) -> tuple[Line | None, float]:
        lines = self._idle.get((address, way), [])
        while lines:
            since, line = lines.pop()
            idle = time.monotonic() - since
            if line.alive and idle < _IDLE_SECONDS:
                return line, idle
            line.drop()
        return None, 0

    async def _keep(self) -> None:
        """Let connections go that nobody has used for a while; all of them when the loop ends."""
        try:
            while True:
                await asyncio.sleep(_IDLE_SECONDS / 2)
                self._let_go(time.monotonic() - _IDLE_SECONDS)
        finally:
            self._let_go(float("inf"))

    def _let_go(self, before: float) -> None:
        for lines in self._idle.values():
            for kept in [kept for kept in lines if kept[0] < before or not kept[1].alive]:
                lines.remove(kept)
                kept[1].drop()


class _Unheard(Exception):
    """The connection ended before a byte of an answer came."""

    def __init__(self, fault: UpstreamFault) -> None:
        self.fault = fault


async def _answered(talk: _Talk, head: h11.Request, body: bytes) -> _Talk:
    try:
        await talk.send(head, body)
        await talk.hear_head()
    except BaseException:
        talk.line.drop()
        raise
    return talk


class _Talk:
    """One request and its answer on one connection."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.response: h11.Response | None = None
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        self._heard = False

    @property
    def over_well(self) -> bool:
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def send(self, head: h11.Request, body: bytes) -> None:
        first = self._http.send(head) or b""
        self._http.send(h11.Data(data=body))  # with a content-length, bytes go as they are
        self._http.send(h11.EndOfMessage())
        try:
            if len(body) > _JOINED:
                await self.line.write(first)
                await self.line.write(body)
            else:
                await self.line.write(first + body)
        except OSError:
            pass  # It may have answered before it had heard us to the end: 413 and its kin.

    async def hear_head(self) -> None:
        try:
            while not isinstance(event := self._http.next_event(), h11.Response):
                if event is h11.NEED_DATA:
                    await self._hear()
        except h11.RemoteProtocolError as error:
            raise UpstreamFault("protocol", f"the API does not answer in HTTP: {error}") from None
        self.response = event

    async def pieces(self) -> AsyncIterator[bytes]:
        """What has come together is told together; what came before a fault is told before it."""
        while True:
            got, fault, over = self._said()
            if got:
                yield b"".join(got)
            if fault is not None:
                raise fault
            if over:
                return
            await self._hear()

    def _said(self) -> tuple[list[bytes], UpstreamFault | None, bool]:
        got: list[bytes] = []
        try:
            while isinstance(event := self._http.next_event(), h11.Data):
                got.append(event.data)
        except h11.RemoteProtocolError as error:
            if self._http.trailing_data[1]:  # the end of the connection has been heard
                return got, UpstreamFault("cut", f"the API's answer was cut: {error}"), False
            return got, UpstreamFault("protocol", f"the API's answer is no HTTP any more: {error}"), False
        return got, None, event is not h11.NEED_DATA

    async def _hear(self) -> None:
        try:
            data = await self.line.read()
        except OSError as error:
            fault = UpstreamFault("cut", f"the connection to the API broke: {error}")
            raise fault if self._heard else _Unheard(fault) from None
        if not data and not self._heard:
            raise _Unheard(UpstreamFault("cut", "the API closed the connection without an answer"))
        self._heard = True
        self._http.receive_data(data)
