"""Tests of forwarding to an API: requests, answers, secrets and the reuse of connections."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from queue import Queue

import psutil
import pytest

from fake_google import FakeGoogle, Fault
from fake_sign_ins import LOGIN, FakeCodeAssist, FakeVertex
from geminids.errors import GeminidsError
from geminids.gateway import Gateway, Reply, Request
from geminids.gateway.forward.credential import ApiKey, CliLogin, VertexCredentials
from geminids.gateway.forward.forward import Forwarding, _SecretMasker, default_base_url
from geminids.gateway.forward.network_settings import NetworkSettings
from geminids.gateway.lease import TOKEN_PREFIX, Lease
from geminids.gateway.messages import Answered, GatewayMessage
from geminids.gateway.registry import open_lease
from geminids.gateway.upstream import Part

STREAM = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"
TOKEN = {"x-goog-api-key": "the-token"}
BODY = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}).encode()


@contextmanager
def forward_to(google: FakeGoogle, url: str | None = None, key: str = "the-key") -> Iterator[Gateway]:
    with Gateway(Forwarding(url or google.url, ApiKey(key), NetworkSettings())) as gateway:
        yield gateway


@contextmanager
def open_response(
    gateway: Gateway, path: str = STREAM, headers: dict[str, str] = TOKEN, body: bytes = BODY
) -> Iterator[http.client.HTTPResponse]:
    """Send a request to the gateway and yield the open response."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    try:
        connection.request("POST", path, body, headers)
        with connection.getresponse() as response:
            yield response
    finally:
        connection.close()


def ask(gateway: Gateway, path: str = STREAM, headers: dict[str, str] = TOKEN, body: bytes = BODY) -> bytes:
    """Send a request to the gateway and return the body of the answer."""
    with open_response(gateway, path, headers, body) as response:
        return response.read()


# Requests that the gateway sends to the API.


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (STREAM, {"x-goog-api-key": "the-token"}),
        (STREAM, {"Authorization": "Bearer the-token"}),
        (STREAM, {"x-goog-api-key": "the-token", "Authorization": "Bearer the-token"}),
        (STREAM, {"x-goog-api-key": "the-token", "x-other": "a the-token b"}),
    ],
)
def test_key_replaces_the_token(path: str, headers: dict[str, str]) -> None:
    """The gateway replaces the token by the key in each header. The API never sees the token."""
    with FakeGoogle() as google, forward_to(google) as gateway:
        ask(gateway, path, headers)
    (received,) = google.asked
    assert received.path == path.replace("the-token", "the-key")
    for name in ("x-goog-api-key", "authorization"):
        sent = {key.lower(): value for key, value in headers.items()}.get(name)
        assert received.headers.get(name) == (sent and sent.replace("the-token", "the-key"))
    assert "the-token" not in str(received)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        (f"{STREAM}&key=the-token", STREAM),
        ("/v1beta/models?key=the-token", "/v1beta/models"),
        ("/v1beta/models?key=the-token&pageSize=5&key=x", "/v1beta/models?pageSize=5"),
        ("/v1beta/models?key=the-token&callback=key=***", "/v1beta/models?callback=key=***"),
    ],
)
def test_key_is_never_in_a_url(path: str, sent: str) -> None:
    """A token in the query is removed from the URL, and the key is sent as a header.
    The API may return URLs to the client, so a URL must not contain the key."""
    with FakeGoogle() as google, forward_to(google) as gateway:
        ask(gateway, path, {})
    (received,) = google.asked
    assert (received.path, received.headers["x-goog-api-key"]) == (sent, "the-key")
    assert "the-token" not in str(received)


def test_key_is_masked_in_response_headers() -> None:
    """If the API repeats the key in a response header, the client gets `***` instead."""
    echo = b"HTTP/1.1 200 OK\r\nx-goog-upload-url: https://api.test/u?key=the-key&id=1\r\ncontent-length: 0\r\n\r\n"
    with (
        FakeGoogle([Fault("raw", data=echo)]) as google,
        forward_to(google) as gateway,
        open_response(gateway) as response,
    ):
        assert response.headers["x-goog-upload-url"] == "https://api.test/u?key=***&id=1"


def test_request_headers() -> None:
    """The client's own headers and its body are forwarded; headers of its connection are not."""
    sent = {
        **TOKEN,
        "User-Agent": "GeminiCLI/0.61.0",
        "X-Own": "kept",
        "Authorization": "Basic b3du",
        "Content-Type": "application/json",
        "Accept-Encoding": "gzip, br",
        "Connection": "keep-alive, x-hop",
        "X-Hop": "dropped",
        "TE": "trailers",
        "Proxy-Authorization": "Basic dropped",
    }
    with FakeGoogle() as google, forward_to(google) as gateway:
        ask(gateway, headers=sent)
    (received,) = google.asked
    assert received.headers == {
        "host": f"127.0.0.1:{google.port}",
        "x-goog-api-key": "the-key",
        "user-agent": "GeminiCLI/0.61.0",
        "x-own": "kept",
        "authorization": "Basic b3du",
        "content-type": "application/json",
        "accept-encoding": "identity",
        "content-length": str(len(BODY)),
    }
    assert received.body == BODY
    assert "b3du" not in str(gateway.requests[0].headers)


def test_base_url_with_a_path() -> None:
    """If the base URL has a path, the API's paths are appended to it."""
    with FakeGoogle() as google, forward_to(google, google.url + "/corp/gemini/") as gateway:
        ask(gateway)
    assert google.asked[0].path == "/corp/gemini" + STREAM


def test_get_without_a_body() -> None:
    """A GET request is forwarded without a body and without a content length."""
    with FakeGoogle() as google, forward_to(google) as gateway:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        connection.request("GET", "/v1beta/models", headers=TOKEN)
        assert connection.getresponse().status == 404
        connection.close()
    assert google.asked[0].verb == "GET"
    assert "content-length" not in google.asked[0].headers


def test_large_request_body() -> None:
    """A request body of 20 MB reaches the API unchanged."""
    body = b'{"a":"' + b"0123456789" * 2_000_000 + b'"}'
    with FakeGoogle() as google, forward_to(google) as gateway:
        ask(gateway, body=body)
    assert google.asked[0].body == body


# Answers of the API.


@pytest.mark.parametrize("status", [200, 400, 403, 404, 429, 500, 503])
def test_any_status_is_forwarded(status: int) -> None:
    """The client gets the status, headers and body of the API byte for byte, for any status."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
    reply = Reply(status=status, text="hi", details=details, headers={"retry-after": "7"}, times=None)
    with FakeGoogle([reply]) as google, forward_to(google) as gateway:
        with open_response(gateway) as response:
            head = response.status, response.headers["content-type"], response.headers["retry-after"]
            through = response.read()
        direct = http.client.HTTPConnection("127.0.0.1", google.port, timeout=20)
        direct.request("POST", STREAM, BODY, TOKEN)
        with direct.getresponse() as response:
            assert head == (status, response.headers["content-type"], "7")
            assert through == response.read()
        direct.close()


@pytest.mark.parametrize(
    "pieces", [("the-key",), ("a the-k", "ey b"), tuple("the-key the-key"), ("t",), ("",)]
)
def test_key_is_masked_across_chunks(pieces: tuple[str, ...]) -> None:
    """The key is masked in an error body, even if chunks split it. The rest is unchanged."""
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece.encode()) for piece in pieces if piece)
    raw = b"HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    with FakeGoogle([Fault("raw", data=raw)]) as google, forward_to(google) as gateway:
        assert ask(gateway).decode() == "".join(pieces).replace("the-key", "*******")
    masker = _SecretMasker("the-key")
    masked = b"".join(masker.feed(piece.encode()) for piece in pieces) + masker.rest
    assert masked.decode() == "".join(pieces).replace("the-key", "*******")


@pytest.mark.parametrize("cut", [False, True])
def test_key_is_masked_in_an_error(cut: bool) -> None:
    """If an error of Google contains the key, the client sees stars, even
    if the error is cut off."""
    reply = Reply(status=403, error="Permission denied: Consumer 'api_key:the-key' has been suspended.")
    fault = Fault("short", reply) if cut else reply
    with FakeGoogle([fault]) as google, forward_to(google) as gateway, open_response(gateway) as response:
        try:
            body = response.read()
        except http.client.IncompleteRead as error:
            body = error.partial
        except ConnectionError:
            body = b""
        assert response.status == 403
    assert b"the-key" not in body
    assert cut or b"api_key:******* has" in body.replace(b"'", b"")


@pytest.mark.parametrize("key", ["", " ", "a b", "a\nb", "schlüssel"])
def test_invalid_key_is_refused(key: str) -> None:
    """A key that no header can hold is refused before any request. The error does not show it."""
    with pytest.raises(GeminidsError) as caught:
        Forwarding("https://api.test", ApiKey(key), NetworkSettings())
    assert not key.strip() or key not in str(caught.value)


def test_chunks_are_forwarded_at_once() -> None:
    """The client gets each chunk before the API sends the next one."""
    slow = Reply(text=["one", "two"], pause=60)
    with FakeGoogle([slow]) as google, forward_to(google) as gateway, open_response(gateway) as response:
        assert b"one" in response.readline()


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\nA: b\r\n\r\n", b"hi"),
    ],
)
def test_every_http_body_form(raw: bytes, body: bytes) -> None:
    """The client gets the whole body, no matter how HTTP marks its end."""
    with FakeGoogle([Fault("raw", data=raw)]) as google, forward_to(google) as gateway:
        assert ask(gateway) == body


def test_large_answer_is_not_held_in_memory() -> None:
    """An answer of 50 MB is forwarded whole and takes less than 20 MB of memory."""
    size = 50_000_000
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size)
    with FakeGoogle([Reply(text="warm up"), Fault("raw", data=raw)]) as google, forward_to(google) as gateway:
        ask(gateway)
        before = psutil.Process().memory_info().rss
        with open_response(gateway) as response:
            read, peak = 0, 0
            while piece := response.read(1_000_000):
                read += len(piece)
                peak = max(peak, psutil.Process().memory_info().rss)
    assert read == size
    assert peak - before < 20_000_000


def test_slow_client_slows_the_api() -> None:
    """If the client does not read, the gateway stops reading from the API."""
    was_blocked = threading.Event()

    class FloodingGoogle(FakeGoogle):
        def _answer(self, client: socket.socket, asked: object) -> bool:
            client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 50000000\r\n\r\n")
            client.settimeout(1)
            try:
                client.sendall(bytes(50_000_000))
            except TimeoutError:
                was_blocked.set()
            return False

    with FloodingGoogle() as google, forward_to(google) as gateway, open_response(gateway) as response:
        assert response.status == 200
        assert was_blocked.wait(20)


# Connections.


def test_connections_are_reused_and_shared() -> None:
    """Successive requests use one connection, even with different keys."""
    with FakeGoogle() as google:
        upstreams = [Forwarding(google.url, ApiKey(key), NetworkSettings()) for key in ("one", "two")]

        class Both:
            def answer(self, request: Request):  # type: ignore[no-untyped-def]
                return upstreams[request.n % 2].answer(request)

        with Gateway(Both()) as gateway:
            for _ in range(4):
                ask(gateway)
        assert [received.key for received in google.asked] == ["two", "one"] * 2
        assert google.connections == 1


def test_gateway_closes_its_connections() -> None:
    """The gateway closes its connections to the API when it ends."""
    with FakeGoogle() as google:
        with forward_to(google) as gateway:
            ask(gateway)
            assert google.open == 1
        assert google.wait_until(lambda: not google._clients)


@pytest.mark.parametrize("unasked", [b"", b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"])
def test_closed_connection_is_replaced(unasked: bytes) -> None:
    """If the API closed an idle connection, the next request opens a new one."""
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
    replies: list[Reply | Fault] = [Fault("raw", data=raw + unasked), Reply(text="fresh")]
    with FakeGoogle(replies) as google, forward_to(google) as gateway:
        assert ask(gateway) == b"hi"
        assert google.wait_until(lambda: not google._clients)
        assert b"fresh" in ask(gateway)
    assert google.connections == 2


def test_request_is_resent_after_an_idle_connection_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a long idle connection closes without an answer, the request is sent again.
    The API cannot have read it."""
    replies: list[Reply | Fault] = [Reply(text="first"), Fault("silent"), Reply(text="again")]
    with FakeGoogle(replies) as google, forward_to(google) as gateway:
        ask(gateway)
        monkeypatch.setattr("geminids.gateway.forward.client._SAFE_IDLE_SECONDS", 0)
        assert b"again" in ask(gateway)
    assert [received.connection for received in google.asked] == [1, 1, 2]


def test_request_is_not_resent_on_a_recent_connection() -> None:
    """If a recently used connection closes without an answer, the request fails.
    It is not sent again, because the API may have read it."""
    replies: list[Reply | Fault] = [Reply(text="first"), Fault("silent"), Reply(text="again")]
    with FakeGoogle(replies) as google, forward_to(google) as gateway:
        ask(gateway)
        with pytest.raises(ConnectionError):
            ask(gateway)
    assert len(google.asked) == 2


def test_request_body_is_released_when_the_answer_begins() -> None:
    """The gateway drops the request body once the answer has begun.
    It still reports the role of the request."""
    requests: list[Request] = []

    class ObservedForwarding(Forwarding):
        async def answer(self, request: Request) -> AsyncIterator[Part]:
            requests.append(request)
            async for part in super().answer(request):
                yield part

    messages: Queue[GatewayMessage] = Queue()
    with FakeGoogle([Reply(text="one", stall=True)]) as google:
        lease = open_lease(
            Lease(ObservedForwarding(google.url, ApiKey("the-key"), NetworkSettings()), messages.put)
        )
        lease.begin()
        connection = http.client.HTTPConnection(lease.url.partition("//")[2], timeout=20)
        body = BODY[:-1] + b', "tools": [{"functionDeclarations": [{"name": "complete_task"}]}]}'
        connection.request("POST", STREAM, body, {"x-goog-api-key": lease.token})
        assert b"one" in connection.getresponse().readline()
        assert requests[0].raw == b"" and google.asked[0].body == body
        connection.close()
        answered = messages.get(timeout=10)
        lease.close()
    assert isinstance(answered, Answered)
    assert (answered.role, answered.whole) == ("subagent", False)


def test_client_disconnect_closes_the_api_connection() -> None:
    """When the client disconnects, the gateway closes the connection to the API at once."""
    with FakeGoogle([Reply(text="one", stall=True)]) as google, forward_to(google) as gateway:
        with open_response(gateway) as response:
            assert b"one" in response.readline()
            assert google.open == 1
        assert google.wait_until(lambda: not google._clients)
        assert gateway.wait_until(lambda: len(gateway._gone) == 1)


def test_client_disconnects_during_a_large_answer() -> None:
    """A client that disconnects during a large answer ends the connection
    to the API, with a lease."""
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: 50000000\r\n\r\n" + bytes(50_000_000)
    with FakeGoogle([Fault("raw", data=raw)]) as google:
        lease = open_lease(
            Lease(Forwarding(google.url, ApiKey("the-key"), NetworkSettings()), lambda message: None)
        )
        lease.begin()
        connection = http.client.HTTPConnection(lease.url.partition("//")[2], timeout=20)
        connection.request("POST", STREAM, BODY, {"x-goog-api-key": lease.token})
        assert connection.getresponse().read(1_000_000) == bytes(1_000_000)
        connection.close()
        assert google.wait_until(lambda: not google._clients)
        lease.close()


def test_client_disconnects_before_the_answer() -> None:
    """A client that disconnects before the answer begins ends the connection to the API, too."""
    with FakeGoogle([Reply(text="one", delay=60)]) as google, forward_to(google) as gateway:
        client = socket.create_connection(("127.0.0.1", gateway.port))
        client.sendall(f"POST {STREAM} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        assert google.wait_until(lambda: len(google.asked) == 1)
        client.close()
        assert google.wait_until(lambda: not google._clients)
        assert gateway.wait_until(lambda: len(gateway._gone) == 1)


def test_parallel_requests() -> None:
    """Fifty parallel clients get their own answers. Their connections to the API are reused."""

    def echo(request: Request) -> Reply:
        return Reply(text=[request.last_user_text] * 20)

    def send_four(number: int) -> None:
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": f"<{number}>"}]}]}).encode()
        for _ in range(4):
            answer = ask(gateway, body=body).decode()
            are_correct.append(answer.count(f'"<{number}>"') == 20 and answer.count('"text"') == 20)

    are_correct: list[bool] = []
    with FakeGoogle(echo) as google, forward_to(google) as gateway:
        threads = [threading.Thread(target=send_four, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert are_correct == [True] * 200
    assert google.connections <= 50


def test_very_short_key_is_not_masked() -> None:
    """A key of one letter, as for a test server, is not masked in headers and errors."""
    replies = [Reply(text="hi"), Reply(status=400, error="a bad one")]
    with FakeGoogle(replies) as google, forward_to(google, key="e") as gateway:
        with open_response(gateway) as response:
            assert response.headers["content-type"] == "text/event-stream"
            response.read()
        assert b"a bad one" in ask(gateway)


def test_request_without_a_token_gets_no_key() -> None:
    """The key only replaces a token. A request without a token is forwarded without a key."""
    with FakeGoogle() as google, forward_to(google) as gateway:
        ask(gateway, headers={})
    (received,) = google.asked
    assert "the-key" not in str(received)


# Other sign-ins.

RUN_TOKEN = TOKEN_PREFIX + "0" * 48
VERTEX = "/v1beta1/publishers/google/models/gemini-test:streamGenerateContent?alt=sse"
CODE_ASSIST = "/v1internal:streamGenerateContent?alt=sse"


def test_vertex_with_a_key() -> None:
    """With Vertex AI, the key replaces the token and the path stays unchanged."""
    with FakeVertex([Reply(text="hi")], with_key="the-key") as google, forward_to(google) as gateway:
        assert b"hi" in ask(gateway, VERTEX)
    assert google.asked[0].path == VERTEX


def test_account_login() -> None:
    """The gateway forwards the CLI's Authorization header and the body unchanged.
    It removes the token from the path."""
    body = json.dumps({"model": "gemini-test", "project": "p", "request": json.loads(BODY)}).encode()
    with (
        FakeCodeAssist([Reply(text="hi")]) as google,
        Gateway(Forwarding(google.url, CliLogin(), NetworkSettings())) as gateway,
    ):
        answer = ask(gateway, f"/{RUN_TOKEN}{CODE_ASSIST}", {"Authorization": f"Bearer {LOGIN}"}, body)
    assert b'data: {"response":{' in answer and b"hi" in answer
    (received,) = google.asked
    assert (received.path, received.body, received.model) == (CODE_ASSIST, body, "gemini-test")
    assert received.headers["authorization"] == f"Bearer {LOGIN}"
    assert RUN_TOKEN not in str(received)
    assert received.usage["promptTokenCount"] == len(body) // 4


def test_get_request_of_an_account_login() -> None:
    """A GET request, which the CLI uses to follow onboarding, is forwarded without the token."""
    with (
        FakeCodeAssist() as google,
        Gateway(Forwarding(google.url, CliLogin(), NetworkSettings())) as gateway,
    ):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        path = f"/{RUN_TOKEN}/v1internal/operations/onboard-1"
        connection.request("GET", path, headers={"Authorization": f"Bearer {LOGIN}"})
        assert connection.getresponse().status == 200
        connection.close()
    assert google.asked[0].path == "/v1internal/operations/onboard-1"


@pytest.mark.parametrize("key", ["the-key", RUN_TOKEN])
def test_nested_run_is_marked(key: str) -> None:
    """A request to another geminids gateway gets the header that marks a nested run.
    The header is removed if a client sends it, so Google never receives it."""
    with FakeGoogle() as google, forward_to(google, key=key) as gateway:
        ask(gateway, headers={**TOKEN, "X-Geminids-Nested": "yes"})
    assert google.asked[0].headers.get("x-geminids-nested") == ("1" if key == RUN_TOKEN else None)
    assert google.asked[0].request.is_nested is (key == RUN_TOKEN)


def test_account_login_in_a_nested_run() -> None:
    """With an account login, the token of the outer run is in the path of the outer endpoint."""
    body = json.dumps({"model": "m", "request": json.loads(BODY)}).encode()
    with FakeCodeAssist([Reply(text="hi")]) as google:
        outer = f"{google.url}/{RUN_TOKEN}"
        with Gateway(Forwarding(outer, CliLogin(), NetworkSettings())) as gateway:
            ask(gateway, f"/of-the-inner{CODE_ASSIST}", {"Authorization": f"Bearer {LOGIN}"}, body)
    assert google.asked[0].path == f"/{RUN_TOKEN}{CODE_ASSIST}"
    assert google.asked[0].request.is_nested


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("europe-west4", "https://europe-west4-aiplatform.googleapis.com"),
        ("global", "https://aiplatform.googleapis.com"),
        ("us", "https://aiplatform.us.rep.googleapis.com"),
        ("eu", "https://aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_vertex_endpoint_of_a_location(location: str, url: str) -> None:
    """Each Vertex location has its own endpoint, the same as in the CLI."""
    assert default_base_url(VertexCredentials("p", location, {}, NetworkSettings())) == url


@pytest.mark.parametrize(
    ("path", "variable"),
    [
        (STREAM, "GOOGLE_GEMINI_BASE_URL"),
        (VERTEX, "GOOGLE_VERTEX_BASE_URL"),
        (CODE_ASSIST, "CODE_ASSIST_ENDPOINT"),
    ],
)
def test_a_redirect_names_the_variable(path: str, variable: str) -> None:
    """The error for a redirect names the environment variable for the base URL of that API."""
    raw = b"HTTP/1.1 302 Found\r\nlocation: https://elsewhere.test/x\r\ncontent-length: 0\r\n\r\n"
    with FakeGoogle(lambda request: Fault("raw", data=raw)) as google, forward_to(google) as gateway:
        assert variable.encode() in ask(gateway, path)
