"""Tests of accepting connections: too many clients, no free descriptors, a lost listener."""

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

# A program that runs out of file descriptors while its gateway runs. `fill` takes all but `left`.
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
    completed = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def _ask(gateway: Gateway) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
    connection.request("POST", "/v1beta/models/m:generateContent", _BODY)
    status = connection.getresponse().status
    connection.close()
    return status


def test_connections_over_the_limit_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway accepts connections only up to its limit. The others wait until one is closed."""
    monkeypatch.setattr("geminids.gateway.server.accept.max_connections", lambda: 4)
    with Gateway(Script((), default=Reply(text="hi"))) as gateway:
        silent = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(20)]
        assert gateway.wait_until(lambda: gateway._open == 4)
        time.sleep(0.1)
        assert gateway.open_connections == 4
        for connection in silent:
            connection.close()
        assert _ask(gateway) == 200


def test_connection_waits_for_a_free_descriptor(tmp_path: Path) -> None:
    """If there is no free file descriptor, a connection waits in the backlog.
    The gateway serves it as soon as a descriptor is free."""
    output = _run(
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
    assert output.split() == ["200", "200"]


def test_request_fails_without_a_descriptor_for_the_api(tmp_path: Path) -> None:
    """A request fails with the system's reason if the gateway cannot connect to the API.
    The gateway forwards the next request once descriptors are free."""
    output = _run(
        tmp_path,
        """
import geminids.gateway.forward.client  # before `fill`: an import needs descriptors, too
with Gateway(Script((), default=Reply(text="hi"))) as api:
    with Gateway(Forwarding(api.url, "the-key", NetworkSettings())) as gateway:
        ready = client(api)  # stays open: a descriptor that it frees later would change the result
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
    assert "connect: no connection to 127.0.0.1:" in output
    assert "Too many open files" in output
    assert output.split()[-1] == "200"


def test_gateway_without_descriptors_cannot_start(tmp_path: Path) -> None:
    """Without free descriptors, `listen` raises an error whose hint names `ulimit -n`.
    A gateway thread that cannot start reports the reason to `on_end`."""
    output = _run(
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
    for line in output.splitlines()[:2]:
        assert "cannot listen on 127.0.0.1:0: [Errno 24] Too many open files | " in line
        assert "ulimit -n" in line
    assert "Too many open files" in output.splitlines()[2]


def test_closed_listener_ends_the_gateway() -> None:
    """If other code closes the listening socket, the gateway ends and reports the reason.
    Its clients are disconnected and do not hang."""
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
    assert ended == ["GeminidsError: other code in this process closed the gateway's listening socket"]


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces exist only on Linux")
def test_loopback_interface_is_down(tmp_path: Path) -> None:
    """If the loopback interface is down, the error contains the command that brings it up."""
    code = "from geminids.gateway.registry import HostGateway; HostGateway()"
    try:
        completed = subprocess.run(
            ["unshare", "-rn", sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if "unshare" in completed.stderr:
        pytest.skip(completed.stderr)
    assert "GeminidsError: the gateway cannot listen on 127.0.0.1:0: [Errno 101]" in completed.stderr
    assert "ip link set lo up" in completed.stderr


def test_port_in_use() -> None:
    """If the port is in use, the hint of the error suggests another port."""
    with Gateway() as gateway, pytest.raises(GeminidsError, match="cannot listen") as raised:
        Gateway(port=gateway.port).listen()
    assert raised.value.hint is not None and "another port" in raised.value.hint
