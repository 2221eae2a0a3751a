"""Tests of a host program that forks while its gateway runs."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Self

import psutil
import pytest

from fake_google import FakeGoogle
from geminids.gateway import Gateway, Reply, Script
from geminids.gateway.forward.credential import ApiKey
from geminids.gateway.forward.forward import Forwarding
from geminids.gateway.forward.network_settings import NetworkSettings
from geminids.gateway.lease import Lease
from geminids.gateway.registry import OpenLease, open_lease
from geminids.gateway.script.scripted_upstream import Scripted

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

STREAM = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"


def _lease(upstream: Any) -> OpenLease:
    opened = open_lease(Lease(upstream, lambda message: None))
    opened.begin()
    return opened


def _send(url: str, token: str) -> http.client.HTTPResponse:
    """Send a request and return when its answer has begun.
    Reading the answer to its end closes the connection."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]})
    connection.request("POST", STREAM, body, {"x-goog-api-key": token, "connection": "close"})
    return connection.getresponse()


def _ports() -> set[tuple[int, int]]:
    """Return the local and the remote port of each TCP socket of this process."""
    connections = psutil.Process().net_connections("tcp")
    return {
        (connection.laddr.port, connection.raddr.port if connection.raddr else 0)
        for connection in connections
    }


def _sockets() -> int:
    folder = "/proc/self/fd"
    paths = [os.path.join(folder, fd) for fd in os.listdir(folder)]
    return sum(os.readlink(path).startswith("socket:") for path in paths if os.path.islink(path))


def _child(pipe: Connection) -> None:
    """Report the sockets of the child, run its own gateway, and wait to be killed."""
    held, sockets = _ports(), _sockets() if os.path.isdir("/proc/self/fd") else None
    own = _lease(Scripted(Script((), default=Reply(text="of the child"))))
    answer = _send(own.url, own.token).read().decode()
    own.close()
    pipe.send((held, sockets, answer))
    threading.Event().wait()


class Forked:
    """A forked child that has reported its state. The child is killed when the block ends."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_child, args=(theirs,), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        if not self._pipe.poll(30):
            self._process.kill()
            raise TimeoutError("the child has not reported")
        self.held, self.sockets, self.answer = self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


@pytest.fixture
def google() -> Iterator[FakeGoogle]:
    with FakeGoogle(lambda request: Reply(text="half", stall=True)) as google:
        yield google


def test_forked_child_has_no_gateway_sockets(google: FakeGoogle) -> None:
    """A child that is forked during a request inherits no socket of the gateway.
    It can run its own gateway. The parent's gateway continues until it is closed."""
    opened = _lease(Forwarding(google.url, ApiKey("the-key"), NetworkSettings()))
    port = int(opened.url.rpartition(":")[2])
    api = int(google.url.rpartition(":")[2])
    response = _send(opened.url, opened.token)
    before = _sockets()
    with Forked() as child:
        ours = {pair for pair in _ports() if port == pair[0] or api == pair[1]}
        assert len(ours) == 3, "the listener, a client, the API"
        assert not ours & child.held
        # The child lacks these three and the two of the gateway's event loop. It has two more for
        # the pipe to its parent.
        assert child.sockets <= before - 5 + 2
        assert "of the child" in child.answer
        second = _send(opened.url, opened.token)
        assert second.status == 200
        opened.close()
        for unfinished in (response, second):
            with pytest.raises((OSError, http.client.HTTPException)):
                unfinished.read()
        for thread in threading.enumerate():
            if thread.name == "geminids-gateway":
                thread.join(20)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
        assert google.wait_until(lambda: google.open == 0), "the connection to the API is still open"


def test_reset_works_after_a_fork() -> None:
    """A reset reaches the client at once, even if a child was forked while
    the connection was open."""
    with Gateway([Reply(text=["one", "two"], pause=0.5, cut=True)]) as gateway:
        response = _send(gateway.url, "anyone")
        with Forked(), pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
            response.read()


def test_close_in_a_child_does_not_affect_the_parent() -> None:
    """`close` in a forked child does not stop the parent's gateway.
    It does not hang either, even if a thread held the gateway's lock during the fork."""
    with Gateway(Script((), default=Reply(text="hi"))) as gateway:
        assert _send(gateway.url, "anyone").status == 200
        held, forked = threading.Event(), threading.Event()

        def hold() -> None:
            with gateway._changed:
                held.set()
                forked.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        pid = os.fork()
        if pid == 0:
            gateway.close()
            os._exit(0 if gateway.ended else 1)
        forked.set()
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert _send(gateway.url, "anyone").status == 200
