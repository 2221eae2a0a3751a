"""What goes wrong on the way to an API: told apart, and never passed off as an answer."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fake_google import FakeGoogle, Fault, certificate
from fake_proxy import FakeProxy
from geminids.gateway import Gateway, Reply
from geminids.gateway.forward.credential import ApiKey
from geminids.gateway.forward.forward import Forwarding
from geminids.gateway.forward.network_settings import NetworkSettings, read_network_settings

STREAM = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@contextmanager
def passing(url: str, network: NetworkSettings | None = None) -> Iterator[Gateway]:
    with Gateway(Forwarding(url, ApiKey("the-key"), network or NetworkSettings())) as gateway:
        yield gateway


def ask(gateway: Gateway) -> tuple[int | None, bytes]:
    """Status and body; None and what came of the body where the connection broke."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    body = b""
    try:
        connection.request("POST", STREAM, b"{}", {"x-goog-api-key": "the-token"})
        with connection.getresponse() as response:
            while piece := response.read1(65536):
                body += piece
            return response.status, body
    except (http.client.HTTPException, ConnectionError):
        return None, body
    finally:
        connection.close()


def fault_of(gateway: Gateway) -> str:
    """Ask once, see the connection break, and give what the gateway says of it: `kind: message`."""
    assert ask(gateway)[0] is None
    return gateway.errors[-1].partition(": ")[2]


# An API that answers badly.


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("silent"), "cut"),
        (Fault("garbage"), "protocol"),
        (Fault("raw", data=b"HTTP/1.1 200 OK\r\nno-colon\r\n\r\n"), "protocol"),
        (Fault("raw", data=b"HTTP/1.1 200 OK\r\nx: " + b"x" * 300_000), "protocol"),
        (Fault("raw", data=b"HTTP/1.1 200 OK\r\nhalf a he"), "protocol"),
        (Fault("reset", after=0), "cut"),
    ],
)
def test_no_answer(fault: Fault, kind: str) -> None:
    """Nothing, garbage or half a head: the client's connection breaks, as without us; the fault has its kind."""
    with FakeGoogle([fault]) as google, passing(google.url) as gateway:
        assert fault_of(gateway).startswith(f"{kind}: ")
        assert len(google.asked) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("cut_in_chunk", after=2), "cut"),
        (Fault("cut_between_chunks", after=2), "cut"),
        (Fault("short", after=2), "cut"),
        (Fault("raw", data=CHUNKED + b'5\r\n"one"\r\nno size\r\n'), "protocol"),
    ],
)
def test_an_answer_that_breaks(fault: Fault, kind: str) -> None:
    """What came of an answer is passed on, and then the connection breaks: it never looks like an end."""
    with FakeGoogle([fault]) as google, passing(google.url) as gateway:
        status, body = ask(gateway)
        assert status is None
        assert b'"one"' in body
        assert gateway.errors[-1].startswith(f"request 1: {kind}: ")


def test_the_next_request_is_none_the_worse() -> None:
    """A connection on which an answer broke is not used again."""
    replies: list[Reply | Fault] = [Reply(text="a"), Fault("cut_in_chunk"), Fault("garbage"), Reply(text="b")]
    with FakeGoogle(replies) as google, passing(google.url) as gateway:
        assert [ask(gateway)[0] for _ in replies] == [200, None, None, 200]
        assert len(google.asked) == 4


def test_a_redirect_goes_no_further() -> None:
    """A redirect is neither followed nor passed on: the client hears where it led, without its query."""
    with FakeGoogle() as elsewhere:
        headers = {"location": f"{elsewhere.url}/there?secret=1"}
        with (
            FakeGoogle([Reply(status=307, headers=headers)]) as google,
            passing(google.url) as gateway,
        ):
            status, body = ask(gateway)
    assert status == 400
    assert f"{elsewhere.url}/there".encode() in body and b"GOOGLE_GEMINI_BASE_URL" in body
    assert b"secret" not in body
    assert elsewhere.asked == []


# An API that is not there.


def test_nobody_listens() -> None:
    """A refused connection is told as such."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with passing(f"http://127.0.0.1:{port}") as gateway:
        assert fault_of(gateway) == f"connect: no connection to 127.0.0.1:{port}: Connection refused"


def test_a_name_that_nobody_knows() -> None:
    """A name without an address is told as such."""
    with passing("http://no-such-host.invalid") as gateway:
        assert fault_of(gateway).startswith("dns: the address of no-such-host.invalid was not found")


def test_the_second_address_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a name has several addresses, one that refuses is passed over."""
    with FakeGoogle() as google:
        found = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", google.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with passing("http://api.test") as gateway:
            assert ask(gateway)[0] == 200


# TLS.


@pytest.fixture(scope="module")
def own_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls"), "api.test")


@pytest.mark.parametrize("name", ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"])
def test_a_certificate_of_ones_own(own_certificate: Path, name: str) -> None:
    """A CA that the environment names is believed."""
    with FakeGoogle(tls=own_certificate) as google:
        url = google.url.replace("localhost", "127.0.0.1")
        with passing(url, read_network_settings({name: str(own_certificate)})) as gateway:
            assert [ask(gateway)[0] for _ in range(2)] == [200, 200]
        assert google.connections == 1
        assert google.asked[0].key == "the-key"


@pytest.mark.parametrize("named", [{}, {"NODE_EXTRA_CA_CERTS": "/repo/no-such-file"}])
def test_a_certificate_that_nobody_vouches_for(own_certificate: Path, named: dict[str, str]) -> None:
    """A certificate of unknown origin gets no request, and the fault says what to do."""
    with (
        FakeGoogle(tls=own_certificate) as google,
        passing(google.url, read_network_settings(named)) as gateway,
    ):
        fault = fault_of(gateway)
        assert google.asked == []
    assert fault.startswith("tls: the certificate of localhost:") and "NODE_EXTRA_CA_CERTS" in fault


def test_a_certificate_of_another_host(own_certificate: Path) -> None:
    """A certificate for another name gets no request."""
    network = read_network_settings({"SSL_CERT_FILE": str(own_certificate)})
    with FakeGoogle(tls=own_certificate) as google, passing(google.url, network) as gateway:
        assert "localhost" in fault_of(gateway)
        assert google.asked == []


def test_no_tls_where_it_should_be() -> None:
    """A server that does not speak TLS is told as such."""

    def refuse() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(65536)
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse)
        thread.start()
        with passing(f"https://127.0.0.1:{listener.getsockname()[1]}") as gateway:
            assert fault_of(gateway).startswith("tls: TLS with ")
        thread.join()


def test_certificates_that_cannot_be_read(own_certificate: Path) -> None:
    """A file of certificates that is not there is said to be the trouble."""
    network = read_network_settings({"SSL_CERT_FILE": "/repo/no-such-file"})
    with FakeGoogle(tls=own_certificate) as google, passing(google.url, network) as gateway:
        assert fault_of(gateway).startswith("tls: the CA certificates cannot be read")


# Proxies.


def through(proxy: FakeProxy, google: FakeGoogle, user: str = "", **more: str) -> tuple[str, NetworkSettings]:
    """A base URL with a name that the proxy alone knows."""
    proxy.leads_to[f"api.test:{google.port}"] = ("127.0.0.1", google.port)
    network = read_network_settings({"HTTPS_PROXY": proxy.url.replace("://", f"://{user}"), **more})
    return f"{google.url.partition(':')[0]}://api.test:{google.port}", network


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("tls_to_proxy", [False, True])
def test_a_proxy(own_certificate: Path, tmp_path: Path, tls: bool, tls_to_proxy: bool) -> None:
    """The API is reached through the proxy, which is asked by name and knows the user, with TLS to either of them."""
    of_proxy = certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(of_proxy.read_text() + own_certificate.read_text())
    with (
        FakeGoogle(tls=own_certificate if tls else None) as google,
        FakeProxy(user="me:p@ss", tls=of_proxy if tls_to_proxy else None) as proxy,
    ):
        url, network = through(proxy, google, "me:p%40ss@", SSL_CERT_FILE=str(both))
        with passing(url, network) as gateway:
            assert [ask(gateway)[0] for _ in range(2)] == [200, 200]
        assert proxy.asked == [f"api.test:{google.port}"]
        assert google.connections == 1
        assert "proxy-authorization" not in google.asked[0].headers


@pytest.mark.parametrize("status", [403, 407, 502])
def test_a_proxy_that_refuses(status: int) -> None:
    """A proxy's refusal is told as such, with its status."""
    with FakeGoogle() as google, FakeProxy(status=status) as proxy:
        with passing(*through(proxy, google)) as gateway:
            fault = fault_of(gateway)
        assert fault.startswith("proxy: the proxy localhost:") and f"HTTP {status}" in fault
        assert google.asked == []


def test_a_proxy_that_is_not_there() -> None:
    """A proxy that cannot be reached is told as such, and the API is not asked past it."""
    with FakeGoogle() as google:
        with FakeProxy() as proxy:
            url, network = through(proxy, google)
        with passing(url, network) as gateway:
            assert fault_of(gateway).startswith("proxy: no connection to the proxy localhost:")
        assert google.asked == []


def test_a_proxy_that_is_none() -> None:
    """A server that answers something else is told as no proxy."""
    with FakeGoogle([Fault("garbage")]) as google:
        network = read_network_settings({"HTTPS_PROXY": google.url})
        with passing("http://api.test", network) as gateway:
            assert fault_of(gateway).startswith("proxy: the proxy 127.0.0.1:")
