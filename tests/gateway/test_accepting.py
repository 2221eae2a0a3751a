"""Accepting connections when there are too many of them, no descriptors, or no listener any more."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geminids import GeminidsError
from geminids.gateway import Gateway, Reply, Script

_BODY = b'{"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}'

# A program that runs out of descriptors while its gateway works. `fill` takes all but `left`.
_PROGRAM = """
import http.client, os, resource, socket, threading
from geminids import GeminidsError
from geminids.gateway import Gateway, Reply, Script
from geminids.gateway.registry import HostGateway
from geminids.gateway.forward.forward import Forwarding
from geminids.gateway.forward.network_settings import NetworkSettings

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []

def fill(left=0):
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    release(left)

def release(count):
    for _ in range(count):
        os.close(taken.pop())

def send(connection):
    connection.request("POST", "/v1beta/models/m:generateContent", b'{"contents": []}')
    return connection

def client(gateway):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    connection.connect()
    return connection
"""


def _run(tmp_path: Path, body: str) -> str:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM + body)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _ask(gateway: Gateway) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
    connection.request("POST", "/v1beta/models/m:generateContent", _BODY)
    status = connection.getresponse().status
    connection.close()
    return status


def test_too_many_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more are accepted than there is room for; when one leaves, the next takes its place."""
    monkeypatch.setattr("geminids.gateway.server.accept.max_connections", lambda: 4)
    with Gateway(Script((), default=Reply(text="hi"))) as gateway:
        silent = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(20)]
        assert gateway.wait_until(lambda: gateway._open == 4)
        time.sleep(0.1)
        assert gateway.open_connections == 4
        for one in silent:
            one.close()
        assert _ask(gateway) == 200


def test_no_descriptor_to_accept_with(tmp_path: Path) -> None:
    """A connection that finds no descriptor waits in the backlog, and is served when one is free."""
    said = _run(
        tmp_path,
        """
with Gateway(Script((), default=Reply(text="hi"))) as gateway:
    print(send(client(gateway)).getresponse().status)
    fill(left=1)
    waiting = send(client(gateway))
    assert gateway.wait_until(lambda: any("Too many open files" in one for one in gateway._errors))
    release(1)
    print(waiting.getresponse().status)
""",
    )
    assert said.split() == ["200", "200"]


def test_no_descriptor_for_the_api(tmp_path: Path) -> None:
    """A request that cannot be passed on fails with the reason, and the next one is passed on."""
    said = _run(
        tmp_path,
        """
import geminids.gateway.forward.client  # imported late: it needs descriptors, too
with Gateway(Script((), default=Reply(text="hi"))) as api:
    with Gateway(Forwarding(api.url, "the-key", NetworkSettings())) as gateway:
        ready = client(api)  # stays open: a descriptor that becomes free later would change the outcome
        assert send(ready).getresponse().read()
        first, second = client(gateway), client(gateway)
        assert gateway.wait_until(lambda: gateway._open == 2)
        fill()
        try:
            send(first).getresponse()
        except (OSError, http.client.HTTPException):
            print(gateway.errors[-1])
        release(4)
        print(send(second).getresponse().status)
""",
    )
    assert "connect: no connection to 127.0.0.1:" in said
    assert "Too many open files" in said
    assert said.split()[-1] == "200"


def test_no_descriptor_to_start_with(tmp_path: Path) -> None:
    """A port that cannot be opened is an error with a remedy; a thread that cannot serve reports its end."""
    said = _run(
        tmp_path,
        """
ended = []
gone = threading.Event()
gateway = Gateway(on_end=lambda why: (ended.append(why), gone.set()))
gateway.listen()
import anyio, geminids.gateway.server.accept, geminids.gateway.server.connection
import anyio._backends._asyncio
fill()
for start in (Gateway().listen, HostGateway):
    try:
        start()
    except GeminidsError as error:
        print(error.message, "|", error.hint)
gateway.begin()
assert gone.wait(20)
release(8)
print(ended)
gateway.close()
""",
    )
    for line in said.splitlines()[:2]:
        assert "cannot listen on 127.0.0.1:0: [Errno 24] Too many open files | " in line
        assert "ulimit -n" in line
    assert "Too many open files" in said.splitlines()[2]


def test_a_listener_that_is_closed_is_reported() -> None:
    """Code that closes descriptors which are not its own ends the gateway with a reason, and clients do not hang."""
    ended: list[str] = []
    gateway = Gateway([Reply(text="hi", stall=True)], on_end=ended.append).start()
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    connection.request("POST", "/v1beta/models/m:streamGenerateContent?alt=sse", _BODY)
    response = connection.getresponse()
    assert gateway._socket is not None
    gateway._socket.close()
    with pytest.raises((OSError, http.client.HTTPException)):
        response.read()
    connection.close()
    gateway.close()
    assert ended == ["GeminidsError: other code in this process closed its listening socket"]


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
def test_no_loopback(tmp_path: Path) -> None:
    """A machine whose loopback interface is down is an error that says so."""
    code = "from geminids.gateway.registry import HostGateway; HostGateway()"
    try:
        done = subprocess.run(
            ["unshare", "-rn", sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert "GeminidsError: the gateway cannot listen on 127.0.0.1:0: [Errno 101]" in done.stderr
    assert "ip link set lo up" in done.stderr


def test_a_taken_port() -> None:
    """A port that somebody else has is an error that names another way."""
    with Gateway() as gateway, pytest.raises(GeminidsError, match="cannot listen") as raised:
        Gateway(port=gateway.port).listen()
    assert raised.value.hint is not None and "another port" in raised.value.hint
