"""Connections to a server, as bytes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import anyio
import pytest

from fake_google import FakeGoogle
from geminids.gateway.forward.connect import open_connection
from geminids.gateway.forward.network_settings import Address, NetworkSettings
from geminids.gateway.upstream import UpstreamFault


@pytest.fixture
def deaf() -> Iterator[Address]:
    """An address whose server lets nobody in, and sends nobody away: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex((host, port))
        yield Address(host, port, tls=False)
        for client in waiting:
            client.close()


def test_bytes_go_at_once_and_a_silent_line_is_watched() -> None:
    """Small pieces do not wait for each other, and the system asks whether a silent server is still there."""

    async def main(port: int) -> list[int]:
        line = await open_connection(Address("127.0.0.1", port, tls=False), NetworkSettings())
        sock = line.transport.get_extra_info("socket")
        found = [
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        ]
        line.drop()
        return [int(one != 0) for one in found]

    with FakeGoogle() as google:
        assert anyio.run(main, google.port) == [1, 1]


def test_a_server_that_does_not_let_us_in(deaf: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is not made in time is a fault, not a wait without end."""
    monkeypatch.setattr("geminids.gateway.forward.connect._CONNECT_SECONDS", 0.3)
    with pytest.raises(UpstreamFault) as caught:
        anyio.run(open_connection, deaf, NetworkSettings())
    assert caught.value.kind == "connect"
    assert caught.value.message == f"no connection to {deaf.host_and_port} within 0.3 s"


def test_an_address_that_is_silent_does_not_hold_up_the_next(
    deaf: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the first address of a name does not answer, the next is tried after a moment."""
    with FakeGoogle() as google:
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
            for port in (deaf.port, google.port)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

        async def main() -> int:
            line = await open_connection(Address("api.test", 80, tls=False), NetworkSettings())
            port: int = line.transport.get_extra_info("peername")[1]
            line.drop()
            return port

        assert anyio.run(main) == google.port


def test_a_name_server_that_is_silent_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for an address can leave at once, and the event loop can end."""
    over = threading.Event()

    def silent(*_: object, **__: object) -> list[object]:
        over.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)

    async def main() -> None:
        with anyio.move_on_after(0.1):
            await open_connection(Address("api.test", 80, tls=False), NetworkSettings())

    began = time.monotonic()
    anyio.run(main)
    took = time.monotonic() - began
    over.set()
    assert took < 10
