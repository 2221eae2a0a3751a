"""Taking connections when there are too many of them."""

from __future__ import annotations

import http.client
import socket
import time

import pytest

from geminids.gateway import Gateway, Reply, Script

_BODY = b'{"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}'


def _ask(gateway: Gateway) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
    connection.request("POST", "/v1beta/models/m:generateContent", _BODY)
    status = connection.getresponse().status
    connection.close()
    return status


def test_too_many_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more are taken than there is room for; when one leaves, the next has its place."""
    monkeypatch.setattr("geminids.gateway.accepting.most_connections", lambda: 4)
    with Gateway(Script((), default=Reply(text="hi"))) as gateway:
        silent = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(20)]
        assert gateway.wait_until(lambda: gateway._open == 4)
        time.sleep(0.1)
        assert gateway.open_connections == 4
        for one in silent:
            one.close()
        assert _ask(gateway) == 200


def test_no_descriptor_left_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one connection could not get is said, and the next one is served."""
    import anyio.abc

    fails = [OSError(24, "Too many open files")] * 2
    made = anyio.abc.SocketListener.from_socket

    async def from_socket(sock: socket.socket) -> anyio.abc.SocketListener:
        listener = await made(sock)
        accept = listener.accept

        async def failing() -> anyio.abc.SocketStream:
            if fails:
                raise fails.pop()
            return await accept()

        monkeypatch.setattr(listener, "accept", failing)
        return listener

    monkeypatch.setattr(anyio.abc.SocketListener, "from_socket", from_socket)
    with Gateway(Script((), default=Reply(text="hi"))) as gateway:
        assert _ask(gateway) == 200
        assert len([one for one in gateway.errors if "Too many open files" in one]) == 2
