"""Tests of authorization: which requests the gateway of a process answers and which it refuses."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest

from geminids.gateway import Reply, Script
from geminids.gateway.lease import Lease
from geminids.gateway.messages import GatewayMessage
from geminids.gateway.registry import OpenLease, open_lease
from geminids.gateway.request import Api
from geminids.gateway.script.scripted_upstream import Scripted

STREAM = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"
BODY = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}).encode()


class LeasedRun:
    """A run with a lease, and methods that send requests to its gateway."""

    def __init__(self, answer: str = "for you", api: Api = "gemini") -> None:
        self.upstream = Scripted(Script((), default=Reply(text=answer)))
        self.messages: list[GatewayMessage] = []
        self.open: OpenLease = open_lease(Lease(self.upstream, self.messages.append, api=api))
        self.open.begin()

    @property
    def port(self) -> int:
        return int(self.open.url.rpartition(":")[2])

    def ask(
        self, path: str = STREAM, /, *, verb: str | None = "POST", **headers: str | None
    ) -> tuple[int, str]:
        """Send a request with this run's token. A header with the value None is left out."""
        all_headers: dict[str, str | None] = {
            "host": f"127.0.0.1:{self.port}",
            "x-goog-api-key": self.open.token,
            "content-length": str(len(BODY)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        lines = [f"{name}: {value}" for name, value in all_headers.items() if value is not None]
        return self.send("\r\n".join([f"{verb} {path} HTTP/1.1", *lines, "", ""]).encode() + BODY)

    def send(self, data: bytes) -> tuple[int, str]:
        with socket.create_connection(("127.0.0.1", self.port), 10) as sock:
            sock.sendall(data)
            response = http.client.HTTPResponse(sock)
            response.begin()
            return response.status, response.read().decode()


@pytest.fixture
def run() -> Iterator[LeasedRun]:
    leased_run = LeasedRun()
    yield leased_run
    leased_run.open.close()


def _assert_refused(run: LeasedRun, answer: tuple[int, str], status: int, word: str) -> None:
    """Check that the gateway refused the request in the API's error format.
    The lease was neither notified nor charged."""
    assert answer[0] == status
    assert word in json.loads(answer[1])["error"]["message"]
    assert "for you" not in answer[1]
    assert run.messages == []
    assert run.open.lease.paid == 0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x_goog_api_key": None, "authorization": "Bearer {token}"},
        {"host": "localhost:{port}"},
        {"sec_fetch_mode": "cors"},
    ],
    ids=["key header", "bearer", "localhost", "Node"],
)
def test_valid_token_is_answered(run: LeasedRun, headers: dict[str, str | None]) -> None:
    """A valid token is accepted in the key header and as a bearer token.
    The gateway's own host names and the header that Node adds are accepted, too."""
    filled = {
        name: value and value.format(token=run.open.token, port=run.port) for name, value in headers.items()
    }
    status, text = run.ask(**filled)
    assert (status, "for you" in text) == (200, True)


def test_token_in_the_query(run: LeasedRun) -> None:
    """The gateway accepts the token as `?key=`, as the API does."""
    assert run.ask(f"{STREAM}&key={run.open.token}", x_goog_api_key=None)[0] == 200


@pytest.mark.parametrize(
    "token",
    [None, "", "wrong", "geminids-run-", "geminids-run-" + "0" * 48, "{token}x", "geminids-holds-the-key"],
)
def test_invalid_token_is_refused(run: LeasedRun, token: str | None) -> None:
    """A missing, guessed or almost correct token gets a 403."""
    sent_token = token.format(token=run.open.token) if token is not None else None
    _assert_refused(run, run.ask(x_goog_api_key=sent_token), 403, "the token is missing or not valid")


def test_token_of_a_finished_run_is_refused(run: LeasedRun) -> None:
    """The token of a finished run is refused while the gateway serves other runs."""
    old = LeasedRun("not for you")
    assert old.ask()[0] == 200
    old.open.close()
    _assert_refused(run, run.ask(x_goog_api_key=old.open.token), 403, "the token is missing or not valid")
    assert run.ask()[0] == 200


def test_token_is_refused_by_another_gateway(run: LeasedRun) -> None:
    """A token is valid only at the gateway that issued it."""
    from geminids.gateway.registry import HostGateway

    other = HostGateway()
    try:
        other.begin()
        port = int(other.url.rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", STREAM, BODY, {"x-goog-api-key": run.open.token})
        assert connection.getresponse().status == 403
        connection.close()
    finally:
        other.stop()


def test_token_selects_the_run(run: LeasedRun) -> None:
    """The token alone decides which run of a host is answered and charged."""
    other = LeasedRun("for the other")
    try:
        assert "for the other" in run.ask(x_goog_api_key=other.open.token)[1]
        assert (run.open.lease.paid, other.open.lease.paid) == (0, 1)
        assert run.messages == []
    finally:
        other.open.close()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1beta/",
        "/v1beta/projects/p/secrets",
        "/v1beta/models/a/b:generateContent",
        "/v1beta/models/%2e%2e/x:generateContent",
        "/../v1beta/models/m:generateContent",
        "//v1beta/models/m:generateContent",
        "/v1beta/models/m:generateContent/more",
        "/v1beta1/publishers/google/models/m:generateContent",
        "/v2/models/m:generateContent",
        "http://elsewhere.example/v1beta/models/m:generateContent",
        "/storage/v1beta/models/m:generateContent",
        "/upload/v1beta/models/m:generateContent",
        "/v1beta/files/abc?$httpHeaders=x-http-method-override:DELETE",
        "/v1beta/files/abc?a=1&%24httpHeaders=x-http-method-override:DELETE",
    ],
)
def test_other_paths_are_refused(run: LeasedRun, path: str) -> None:
    """Only paths of the Gemini API are served, because the key also opens other Google services."""
    _assert_refused(run, run.ask(path), 404, "not a path of the Gemini API")


@pytest.mark.parametrize("verb", ["DELETE", "PUT", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(run: LeasedRun, verb: str) -> None:
    """HTTP methods other than GET and POST are refused, because the CLI uses only these two."""
    _assert_refused(run, run.ask(verb=verb), 404, "not a path of the Gemini API")


def test_connect_is_refused(run: LeasedRun) -> None:
    """The gateway is not a proxy: it answers CONNECT with 404."""
    head = f"CONNECT elsewhere.example:443 HTTP/1.1\r\nhost: 127.0.0.1:{run.port}\r\n"
    status, _ = run.send(f"{head}x-goog-api-key: {run.open.token}\r\n\r\n".encode())
    assert status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models",
        "/v1/models?pageSize=5",
        "/v1beta/models/gemini-2.5-pro",
        "/v1alpha/models/gemini-3.1-pro-preview:countTokens",
        "/v1beta/tunedModels/mine:generateContent",
        "/upload/v1beta/files?upload_protocol=resumable",
        "/v1beta/files/abc-1",
        "/v1beta/cachedContents/abc",
    ],
)
def test_api_paths_reach_the_upstream(run: LeasedRun, path: str) -> None:
    """Paths of the Gemini API are authorized and reach the upstream."""
    assert "not a path of the Gemini API" not in run.ask(path)[1]


@pytest.mark.parametrize(
    "host",
    [
        "elsewhere.example",
        "elsewhere.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost",
        "[::1]:{port}",
        "",
    ],
)
def test_a_foreign_host_is_refused(run: LeasedRun, host: str) -> None:
    """A Host header with another name or port gets a 403.
    This stops DNS rebinding by a web page."""
    _assert_refused(run, run.ask(host=host.format(port=run.port)), 403, "the Host header is not the address")


def test_two_or_no_host_headers(run: LeasedRun) -> None:
    """A request with two Host headers, or with none, gets a 400."""
    for lines in (f"host: 127.0.0.1:{run.port}\r\nhost: elsewhere.example\r\n", ""):
        head = (
            f"POST {STREAM} HTTP/1.1\r\n{lines}x-goog-api-key: {run.open.token}\r\ncontent-length: 0\r\n\r\n"
        )
        assert run.send(head.encode())[0] == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:{port}"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "none"},
    ],
)
def test_a_browser_is_refused(run: LeasedRun, headers: dict[str, str]) -> None:
    """A request from a browser is refused, even with a valid token."""
    filled = {name: value.format(port=run.port) for name, value in headers.items()}
    _assert_refused(run, run.ask(**filled), 403, "does not accept requests from browsers")


def test_connection_closes_after_a_refusal(run: LeasedRun) -> None:
    """The connection is closed after a request with a wrong token and kept
    after one with a valid token."""
    for token, is_kept in (("wrong", False), (run.open.token, True)):
        with socket.create_connection(("127.0.0.1", run.port), 10) as sock:
            head = f"GET /v1beta/models HTTP/1.1\r\nhost: 127.0.0.1:{run.port}\r\nx-goog-api-key: {token}\r\n\r\n"
            sock.sendall(head.encode())
            response = http.client.HTTPResponse(sock)
            response.begin()
            response.read()
            assert response.will_close is not is_kept


def test_idle_connection_without_a_request_is_closed(run: LeasedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway closes a connection if the first request does not arrive in time.
    It waits longer for the second request of a connection."""
    monkeypatch.setattr("geminids.gateway.server.connection._FIRST_REQUEST_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", run.port), 10) as silent:
        silent.sendall(b"POST /v1beta/models HTT")
        assert silent.recv(1) == b""
    connection = http.client.HTTPConnection("127.0.0.1", run.port, timeout=10)
    for pause in (0.0, 0.5):
        time.sleep(pause)
        connection.request("POST", STREAM, BODY, {"x-goog-api-key": run.open.token})
        assert "for you" in connection.getresponse().read().decode()
    connection.close()


# Other APIs: Vertex AI and Code Assist.

VERTEX = "/v1beta1/publishers/google/models/gemini-test:streamGenerateContent?alt=sse"
CODE_ASSIST = "/{token}/v1internal:streamGenerateContent?alt=sse"
PATHS: dict[Api, str] = {"gemini": STREAM, "vertex": VERTEX, "code_assist": CODE_ASSIST}


@pytest.fixture(params=PATHS)
def leased_run(request: pytest.FixtureRequest) -> Iterator[LeasedRun]:
    run_of_api = LeasedRun(api=request.param)
    yield run_of_api
    run_of_api.open.close()


def test_lease_accepts_only_its_own_api(leased_run: LeasedRun) -> None:
    """A lease accepts only paths of its own API. Paths of the other APIs get a 404."""
    for api, path in PATHS.items():
        status, text = leased_run.ask(path.format(token=leased_run.open.token))
        is_own = api == leased_run.open.lease.api
        assert (status, "for you" in text) == ((200, True) if is_own else (404, False))
    assert leased_run.open.lease.paid == 1


@pytest.mark.parametrize(
    "path",
    [
        "/v1/publishers/google/models/m:generateContent",
        "/v1beta1/publishers/google/models/m:countTokens",
        "/v1beta1/publishers/anthropic/models/claude@1:streamGenerateContent",
    ],
)
def test_vertex_paths(path: str) -> None:
    """Vertex paths with a publisher and a model are accepted: the CLI sends
    these with an API key."""
    run = LeasedRun(api="vertex")
    assert "not a path of the" not in run.ask(path)[1]
    run.open.close()


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta1/projects/p/locations/l/publishers/google/models/m:generateContent",
        "/v1beta1/publishers/google/models/m",
        "/v1beta1/publishers/../models/m:generateContent",
        "/v1beta1/publishers/google/models/m:generateContent?$httpMethod=DELETE",
        "/v1beta1/projects/p/locations/l/endpoints",
    ],
)
def test_other_vertex_paths_are_refused(path: str) -> None:
    """Vertex paths with a project or without a method are refused.
    The gateway's credentials may open every project of the account."""
    run = LeasedRun(api="vertex")
    _assert_refused(run, run.ask(path), 404, "not a path of the Vertex AI API")
    run.open.close()


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/{token}/v1internal:loadCodeAssist"),
        ("POST", "/{token}/v1internal:onboardUser"),
        ("POST", "/{token}/v1internal:countTokens"),
        ("POST", "/{token}/v1internal:retrieveUserQuota"),
        ("GET", "/{token}/v1internal:getCodeAssistGlobalUserSetting"),
        ("GET", "/{token}/v1internal/operations/onboard-1"),
    ],
)
def test_code_assist_paths(verb: str, path: str) -> None:
    """Every Code Assist path that the CLI uses is accepted.
    The gateway does not check the login."""
    run = LeasedRun(api="code_assist")
    path = path.format(token=run.open.token)
    assert run.ask(path, verb=verb, x_goog_api_key=None, authorization="Bearer ya29.x")[0] == 200
    run.open.close()


@pytest.mark.parametrize(
    ("path", "headers", "status", "word"),
    [
        ("/v1internal:loadCodeAssist", {}, 403, "the token is missing or not valid"),
        (
            "/v1internal:loadCodeAssist",
            {"authorization": "Bearer {token}"},
            403,
            "the token is missing or not valid",
        ),
        ("/v1internal:loadCodeAssist?key={token}", {}, 403, "the token is missing or not valid"),
        ("/wrong/v1internal:loadCodeAssist", {}, 403, "the token is missing or not valid"),
        ("/{token}x/v1internal:loadCodeAssist", {}, 403, "the token is missing or not valid"),
        ("/{token}/{token}/v1internal:loadCodeAssist", {}, 404, "not a path of the Code Assist API"),
        ("/{token}/v1internal/projects/p", {}, 404, "not a path of the Code Assist API"),
    ],
)
def test_code_assist_without_the_token_in_the_path(
    path: str, headers: dict[str, str], status: int, word: str
) -> None:
    """With Code Assist, only the first path segment can hold the token.
    A token in a header or in the query is refused."""
    run = LeasedRun(api="code_assist")
    filled = {name: value.format(token=run.open.token) for name, value in headers.items()}
    _assert_refused(run, run.ask(path.format(token=run.open.token), **filled), status, word)
    run.open.close()


def test_large_code_assist_body() -> None:
    """The gateway finds the token in the path before it reads the body.
    A body of 200 kB is therefore accepted, although requests without a token are limited."""
    run = LeasedRun(api="code_assist")
    body = json.dumps(
        {"model": "m", "request": {"contents": [{"parts": [{"text": "a" * 200_000}]}]}}
    ).encode()
    connection = http.client.HTTPConnection("127.0.0.1", run.port, timeout=10)
    connection.request("POST", CODE_ASSIST.format(token=run.open.token), body)
    assert "for you" in connection.getresponse().read().decode()
    connection.close()
    run.open.close()
