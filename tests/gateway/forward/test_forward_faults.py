"""Tests of failures between the gateway and an API: each fault is reported with its own kind."""

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
def forward_to(url: str, network: NetworkSettings | None = None) -> Iterator[Gateway]:
    with Gateway(Forwarding(url, ApiKey("the-key"), network or NetworkSettings())) as gateway:
        yield gateway


def ask(gateway: Gateway) -> tuple[int | None, bytes]:
    """Send a request and return its status and body.
    The status is None if the connection broke; the body is then what arrived before."""
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
    """Send a request whose connection breaks and return the gateway's report, `kind: message`."""
    assert ask(gateway)[0] is None
    return gateway.errors[-1].partition(": ")[2]


# Broken answers of an API.


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
def test_invalid_answer_breaks_the_connection(fault: Fault, kind: str) -> None:
    """If the API sends nothing, garbage or half a head, the client's connection breaks.
    The gateway reports the kind of the fault."""
    with FakeGoogle([fault]) as google, forward_to(google.url) as gateway:
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
def test_broken_answer_is_not_completed(fault: Fault, kind: str) -> None:
    """If an answer breaks off, the client gets what arrived, and then its connection breaks.
    The answer never looks complete."""
    with FakeGoogle([fault]) as google, forward_to(google.url) as gateway:
        status, body = ask(gateway)
        assert status is None
        assert b'"one"' in body
        assert gateway.errors[-1].startswith(f"request 1: {kind}: ")


def test_connection_is_not_reused_after_a_fault() -> None:
    """A connection on which an answer broke is not reused, so the next request succeeds."""
    replies: list[Reply | Fault] = [Reply(text="a"), Fault("cut_in_chunk"), Fault("garbage"), Reply(text="b")]
    with FakeGoogle(replies) as google, forward_to(google.url) as gateway:
        assert [ask(gateway)[0] for _ in replies] == [200, None, None, 200]
        assert len(google.asked) == 4


def test_redirect_is_not_followed() -> None:
    """A redirect is neither followed nor forwarded.
    The client gets a 400 that names the target without its query."""
    with FakeGoogle() as elsewhere:
        headers = {"location": f"{elsewhere.url}/there?secret=1"}
        with (
            FakeGoogle([Reply(status=307, headers=headers)]) as google,
            forward_to(google.url) as gateway,
        ):
            status, body = ask(gateway)
    assert status == 400
    assert f"{elsewhere.url}/there".encode() in body and b"GOOGLE_GEMINI_BASE_URL" in body
    assert b"secret" not in body
    assert elsewhere.asked == []


# An API that cannot be reached.


def test_connection_refused() -> None:
    """If the API refuses the connection, the gateway reports a `connect` fault with the reason."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with forward_to(f"http://127.0.0.1:{port}") as gateway:
        assert fault_of(gateway) == f"connect: no connection to 127.0.0.1:{port}: Connection refused"


def test_unknown_host_name() -> None:
    """If the host name has no address, the gateway reports a `dns` fault."""
    with forward_to("http://no-such-host.invalid") as gateway:
        assert fault_of(gateway).startswith("dns: the address of no-such-host.invalid was not found")


def test_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an address of a host refuses the connection, the next address is tried."""
    with FakeGoogle() as google:
        addresses = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", google.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        with forward_to("http://api.test") as gateway:
            assert ask(gateway)[0] == 200


# TLS.


@pytest.fixture(scope="module")
def own_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls"), "api.test")


@pytest.mark.parametrize("name", ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"])
def test_custom_ca_is_trusted(own_certificate: Path, name: str) -> None:
    """A CA certificate that an environment variable names is trusted."""
    with FakeGoogle(tls=own_certificate) as google:
        url = google.url.replace("localhost", "127.0.0.1")
        with forward_to(url, read_network_settings({name: str(own_certificate)})) as gateway:
            assert [ask(gateway)[0] for _ in range(2)] == [200, 200]
        assert google.connections == 1
        assert google.asked[0].key == "the-key"


@pytest.mark.parametrize("environ", [{}, {"NODE_EXTRA_CA_CERTS": "/repo/no-such-file"}])
def test_unknown_certificate_is_refused(own_certificate: Path, environ: dict[str, str]) -> None:
    """No request is sent to a server with an untrusted certificate.
    The fault names the variable that adds a CA."""
    with (
        FakeGoogle(tls=own_certificate) as google,
        forward_to(google.url, read_network_settings(environ)) as gateway,
    ):
        fault = fault_of(gateway)
        assert google.asked == []
    assert fault.startswith("tls: the certificate of localhost:") and "NODE_EXTRA_CA_CERTS" in fault


def test_certificate_of_another_host_is_refused(own_certificate: Path) -> None:
    """No request is sent to a server whose certificate is for another host name."""
    network = read_network_settings({"SSL_CERT_FILE": str(own_certificate)})
    with FakeGoogle(tls=own_certificate) as google, forward_to(google.url, network) as gateway:
        assert "localhost" in fault_of(gateway)
        assert google.asked == []


def test_server_without_tls() -> None:
    """If an https server does not use TLS, the gateway reports a `tls` fault."""

    def refuse() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(65536)
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse)
        thread.start()
        with forward_to(f"https://127.0.0.1:{listener.getsockname()[1]}") as gateway:
            assert fault_of(gateway).startswith("tls: TLS with ")
        thread.join()


def test_missing_ca_file(own_certificate: Path) -> None:
    """If the CA file does not exist, the gateway reports that as the cause."""
    network = read_network_settings({"SSL_CERT_FILE": "/repo/no-such-file"})
    with FakeGoogle(tls=own_certificate) as google, forward_to(google.url, network) as gateway:
        assert fault_of(gateway).startswith("tls: the CA certificates cannot be read")


# Proxies.


def through(proxy: FakeProxy, google: FakeGoogle, user: str = "", **more: str) -> tuple[str, NetworkSettings]:
    """Return a base URL whose host only the proxy can resolve, and the
    settings to use the proxy."""
    proxy.leads_to[f"api.test:{google.port}"] = ("127.0.0.1", google.port)
    network = read_network_settings({"HTTPS_PROXY": proxy.url.replace("://", f"://{user}"), **more})
    return f"{google.url.partition(':')[0]}://api.test:{google.port}", network


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("tls_to_proxy", [False, True])
def test_request_through_a_proxy(
    own_certificate: Path, tmp_path: Path, tls: bool, tls_to_proxy: bool
) -> None:
    """The API is reached through the proxy, with the user's login and with or without TLS.
    The API does not see the login for the proxy."""
    proxy_certificate = certificate(tmp_path)
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(proxy_certificate.read_text() + own_certificate.read_text())
    with (
        FakeGoogle(tls=own_certificate if tls else None) as google,
        FakeProxy(user="me:p@ss", tls=proxy_certificate if tls_to_proxy else None) as proxy,
    ):
        url, network = through(proxy, google, "me:p%40ss@", SSL_CERT_FILE=str(ca_file))
        with forward_to(url, network) as gateway:
            assert [ask(gateway)[0] for _ in range(2)] == [200, 200]
        assert proxy.asked == [f"api.test:{google.port}"]
        assert google.connections == 1
        assert "proxy-authorization" not in google.asked[0].headers


@pytest.mark.parametrize("status", [403, 407, 502])
def test_proxy_refuses(status: int) -> None:
    """If the proxy refuses the connection, the gateway reports a `proxy` fault with its status."""
    with FakeGoogle() as google, FakeProxy(status=status) as proxy:
        with forward_to(*through(proxy, google)) as gateway:
            fault = fault_of(gateway)
        assert fault.startswith("proxy: the proxy localhost:") and f"HTTP {status}" in fault
        assert google.asked == []


def test_unreachable_proxy() -> None:
    """If the proxy cannot be reached, the gateway reports that and does not bypass the proxy."""
    with FakeGoogle() as google:
        with FakeProxy() as proxy:
            url, network = through(proxy, google)
        with forward_to(url, network) as gateway:
            assert fault_of(gateway).startswith("proxy: no connection to the proxy localhost:")
        assert google.asked == []


def test_server_that_is_not_a_proxy() -> None:
    """If the server does not answer like a proxy, the gateway reports a `proxy` fault."""
    with FakeGoogle([Fault("garbage")]) as google:
        network = read_network_settings({"HTTPS_PROXY": google.url})
        with forward_to("http://api.test", network) as gateway:
            assert fault_of(gateway).startswith("proxy: the proxy 127.0.0.1:")
