"""Who gets an answer from the gateway of a process, and who does not: a live token is needed, and more."""

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
from geminids.gateway.script.scripted import Scripted

STREAM = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"
BODY = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}).encode()


class Asking:
    """A run with a lease, and whoever comes to its gateway."""

    def __init__(self, says: str = "for you", api: Api = "gemini") -> None:
        self.upstream = Scripted(Script((), default=Reply(text=says)))
        self.told: list[GatewayMessage] = []
        self.open: OpenLease = open_lease(Lease(self.upstream, self.told.append, api=api))
        self.open.begin()

    @property
    def port(self) -> int:
        return int(self.open.url.rpartition(":")[2])

    def ask(
        self, path: str = STREAM, /, *, verb: str | None = "POST", **headers: str | None
    ) -> tuple[int, str]:
        """Ask with this run's token; a header that is None is left out."""
        given: dict[str, str | None] = {
            "host": f"127.0.0.1:{self.port}",
            "x-goog-api-key": self.open.token,
            "content-length": str(len(BODY)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        lines = [f"{name}: {value}" for name, value in given.items() if value is not None]
        return self.say("\r\n".join([f"{verb} {path} HTTP/1.1", *lines, "", ""]).encode() + BODY)

    def say(self, data: bytes) -> tuple[int, str]:
        with socket.create_connection(("127.0.0.1", self.port), 10) as sock:
            sock.sendall(data)
            response = http.client.HTTPResponse(sock)
            response.begin()
            return response.status, response.read().decode()


@pytest.fixture
def run() -> Iterator[Asking]:
    asking = Asking()
    yield asking
    asking.open.close()


def _refused(run: Asking, answer: tuple[int, str], status: int, word: str) -> None:
    """A refusal in the API's own form; whoever has the lease hears nothing, and pays for nothing."""
    assert answer[0] == status
    assert word in json.loads(answer[1])["error"]["message"]
    assert "for you" not in answer[1]
    assert run.told == []
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
def test_a_live_token_gets_an_answer(run: Asking, headers: dict[str, str | None]) -> None:
    """As the CLI sends it on any release, with what Node adds by itself."""
    filled = {
        name: value and value.format(token=run.open.token, port=run.port) for name, value in headers.items()
    }
    status, text = run.ask(**filled)
    assert (status, "for you" in text) == (200, True)


def test_a_token_in_the_query_will_do(run: Asking) -> None:
    """The API takes `?key=` too."""
    assert run.ask(f"{STREAM}&key={run.open.token}", x_goog_api_key=None)[0] == 200


@pytest.mark.parametrize(
    "token",
    [None, "", "wrong", "geminids-run-", "geminids-run-" + "0" * 48, "{token}x", "geminids-holds-the-key"],
)
def test_without_a_live_token_nobody_is_answered(run: Asking, token: str | None) -> None:
    """Neither none, nor a guess, nor nearly the right one."""
    given = token.format(token=run.open.token) if token is not None else None
    _refused(run, run.ask(x_goog_api_key=given), 403, "the token is missing or not valid")


def test_a_token_is_worth_nothing_after_its_run(run: Asking) -> None:
    """An old token is as good as none, while the gateway lives on for others."""
    old = Asking("not for you")
    assert old.ask()[0] == 200
    old.open.close()
    _refused(run, run.ask(x_goog_api_key=old.open.token), 403, "the token is missing or not valid")
    assert run.ask()[0] == 200


def test_a_token_is_worth_nothing_at_another_hosts_gateway(run: Asking) -> None:
    """Each process has a gateway of its own, with tokens of its own."""
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


def test_the_token_of_another_run_gives_that_ones_answers(run: Asking) -> None:
    """Two runs of one host are kept apart by their tokens alone: what is asked with one is that one's."""
    other = Asking("for the other")
    try:
        assert "for the other" in run.ask(x_goog_api_key=other.open.token)[1]
        assert (run.open.lease.paid, other.open.lease.paid) == (0, 1)
        assert run.told == []
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
def test_other_paths_are_refused(run: Asking, path: str) -> None:
    """Only the Gemini API's own: the key opens more at Google than that."""
    _refused(run, run.ask(path), 404, "not a path of the Gemini API")


@pytest.mark.parametrize("verb", ["DELETE", "PUT", "PATCH", "OPTIONS"])
def test_other_verbs_are_refused(run: Asking, verb: str) -> None:
    """The CLI asks with GET and POST alone."""
    _refused(run, run.ask(verb=verb), 404, "not a path of the Gemini API")


def test_a_tunnel_is_refused(run: Asking) -> None:
    """It is no proxy."""
    head = f"CONNECT elsewhere.example:443 HTTP/1.1\r\nhost: 127.0.0.1:{run.port}\r\n"
    status, _ = run.say(f"{head}x-goog-api-key: {run.open.token}\r\n\r\n".encode())
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
def test_the_apis_own_paths_come_to_whoever_answers(run: Asking, path: str) -> None:
    """The script knows few of them (404 in its own words), but the door lets them in."""
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
def test_a_foreign_host_is_refused(run: Asking, host: str) -> None:
    """A page whose name was made to lead to 127.0.0.1 sends that name."""
    _refused(run, run.ask(host=host.format(port=run.port)), 403, "only requests to its own host")


def test_two_hosts_or_none_are_no_request(run: Asking) -> None:
    """Nobody may choose which of them is looked at."""
    for lines in (f"host: 127.0.0.1:{run.port}\r\nhost: elsewhere.example\r\n", ""):
        head = (
            f"POST {STREAM} HTTP/1.1\r\n{lines}x-goog-api-key: {run.open.token}\r\ncontent-length: 0\r\n\r\n"
        )
        assert run.say(head.encode())[0] == 400


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
def test_a_browser_is_refused(run: Asking, headers: dict[str, str]) -> None:
    """Even with a live token: no page has a business here, and browsers say what they are."""
    filled = {name: value.format(port=run.port) for name, value in headers.items()}
    _refused(run, run.ask(**filled), 403, "does not serve browsers")


def test_who_was_refused_is_let_go(run: Asking) -> None:
    """A stranger's connection takes no place: it is closed after the refusal, one with a token is kept."""
    for token, kept in (("wrong", False), (run.open.token, True)):
        with socket.create_connection(("127.0.0.1", run.port), 10) as sock:
            head = f"GET /v1beta/models HTTP/1.1\r\nhost: 127.0.0.1:{run.port}\r\nx-goog-api-key: {token}\r\n\r\n"
            sock.sendall(head.encode())
            response = http.client.HTTPResponse(sock)
            response.begin()
            response.read()
            assert response.will_close is not kept


def test_who_says_nothing_is_let_go(run: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first request that does not come is not waited for; a second one may take its time."""
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


# Other forms of the API.

VERTEX = "/v1beta1/publishers/google/models/gemini-test:streamGenerateContent?alt=sse"
CODE_ASSIST = "/{token}/v1internal:streamGenerateContent?alt=sse"
FORMS: dict[Api, str] = {"gemini": STREAM, "vertex": VERTEX, "code_assist": CODE_ASSIST}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[Asking]:
    asking = Asking(api=request.param)
    yield asking
    asking.open.close()


def test_a_lease_accepts_its_own_form_alone(form: Asking) -> None:
    """The sign-in of a run has one form of the API; its token is worth nothing at the others."""
    for api, path in FORMS.items():
        status, text = form.ask(path.format(token=form.open.token))
        own = api == form.open.lease.api
        assert (status, "for you" in text) == ((200, True) if own else (404, False))
    assert form.open.lease.paid == 1


@pytest.mark.parametrize(
    "path",
    [
        "/v1/publishers/google/models/m:generateContent",
        "/v1beta1/publishers/google/models/m:countTokens",
        "/v1beta1/publishers/anthropic/models/claude@1:streamGenerateContent",
    ],
)
def test_paths_of_vertex(path: str) -> None:
    """The CLI with a key names a publisher and a model, and no project."""
    run = Asking(api="vertex")
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
def test_other_paths_of_vertex_are_refused(path: str) -> None:
    """The gateway's own credentials open every project of the account: the CLI does not choose one."""
    run = Asking(api="vertex")
    _refused(run, run.ask(path), 404, "not a path of the Vertex AI API")
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
def test_paths_of_code_assist(verb: str, path: str) -> None:
    """All that the CLI asks for an account comes in, and the login is not looked at."""
    run = Asking(api="code_assist")
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
    """The lease is found by the first segment of the path, and by nothing else."""
    run = Asking(api="code_assist")
    filled = {name: value.format(token=run.open.token) for name, value in headers.items()}
    _refused(run, run.ask(path.format(token=run.open.token), **filled), status, word)
    run.open.close()


def test_a_large_body_of_code_assist() -> None:
    """The token in the path is known before the body is read: a large one is not taken for a stranger's."""
    run = Asking(api="code_assist")
    body = json.dumps(
        {"model": "m", "request": {"contents": [{"parts": [{"text": "a" * 200_000}]}]}}
    ).encode()
    connection = http.client.HTTPConnection("127.0.0.1", run.port, timeout=10)
    connection.request("POST", CODE_ASSIST.format(token=run.open.token), body)
    assert "for you" in connection.getresponse().read().decode()
    connection.close()
    run.open.close()
