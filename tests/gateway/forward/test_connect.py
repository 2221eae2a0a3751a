"""Tests of opening connections to a server."""

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
def unresponsive() -> Iterator[Address]:
    """The address of a server that neither accepts nor refuses connections: its queue is full."""
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


def test_socket_options() -> None:
    """A connection has TCP_NODELAY and SO_KEEPALIVE set."""

    async def main(port: int) -> list[int]:
        connection = await open_connection(Address("127.0.0.1", port, tls=False), NetworkSettings())
        sock = connection.transport.get_extra_info("socket")
        options = [
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        ]
        connection.drop()
        return [int(option != 0) for option in options]

    with FakeGoogle() as google:
        assert anyio.run(main, google.port) == [1, 1]


def test_connect_timeout(unresponsive: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a connection cannot be opened in time, `open_connection` raises an `UpstreamFault`."""
    monkeypatch.setattr("geminids.gateway.forward.connect._CONNECT_SECONDS", 0.3)
    with pytest.raises(UpstreamFault) as caught:
        anyio.run(open_connection, unresponsive, NetworkSettings())
    assert caught.value.kind == "connect"
    assert caught.value.message == f"no connection to {unresponsive.host_and_port} within 0.3 s"


def test_unresponsive_address_does_not_delay_the_next(
    unresponsive: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the first address of a host does not respond, the next address is tried soon after."""
    with FakeGoogle() as google:
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
            for port in (unresponsive.port, google.port)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)

        async def main() -> int:
            connection = await open_connection(Address("api.test", 80, tls=False), NetworkSettings())
            port: int = connection.transport.get_extra_info("peername")[1]
            connection.drop()
            return port

        assert anyio.run(main) == google.port


def test_cancelling_a_dns_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow DNS lookup can be cancelled at once, and it does not keep the event loop alive."""
    is_over = threading.Event()

    def block(*_: object, **__: object) -> list[object]:
        is_over.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", block)

    async def main() -> None:
        with anyio.move_on_after(0.1):
            await open_connection(Address("api.test", 80, tls=False), NetworkSettings())

    started = time.monotonic()
    anyio.run(main)
    seconds = time.monotonic() - started
    is_over.set()
    assert seconds < 10
