"""Requests passed on to an API: whole and unchanged but for the key, as they come, on connections that are kept."""

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
def passing(google: FakeGoogle, url: str | None = None, key: str = "the-key") -> Iterator[Gateway]:
    with Gateway(Forwarding(url or google.url, ApiKey(key), NetworkSettings())) as gateway:
        yield gateway


@contextmanager
def asking(
    gateway: Gateway, path: str = STREAM, headers: dict[str, str] = TOKEN, body: bytes = BODY
) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    try:
        connection.request("POST", path, body, headers)
        with connection.getresponse() as response:
            yield response
    finally:
        connection.close()


def ask(gateway: Gateway, path: str = STREAM, headers: dict[str, str] = TOKEN, body: bytes = BODY) -> bytes:
    with asking(gateway, path, headers, body) as response:
        return response.read()


# What goes out.


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (STREAM, {"x-goog-api-key": "the-token"}),
        (STREAM, {"Authorization": "Bearer the-token"}),
        (STREAM, {"x-goog-api-key": "the-token", "Authorization": "Bearer the-token"}),
        (STREAM, {"x-goog-api-key": "the-token", "x-other": "a the-token b"}),
    ],
)
def test_the_key_is_where_the_token_was(path: str, headers: dict[str, str]) -> None:
    """The key goes out in each place in which the token came, and the token nowhere."""
    with FakeGoogle() as google, passing(google) as gateway:
        ask(gateway, path, headers)
    (asked,) = google.asked
    assert asked.path == path.replace("the-token", "the-key")
    for name in ("x-goog-api-key", "authorization"):
        given = {key.lower(): value for key, value in headers.items()}.get(name)
        assert asked.headers.get(name) == (given and given.replace("the-token", "the-key"))
    assert "the-token" not in str(asked)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        (f"{STREAM}&key=the-token", STREAM),
        ("/v1beta/models?key=the-token", "/v1beta/models"),
        ("/v1beta/models?key=the-token&pageSize=5&key=x", "/v1beta/models?pageSize=5"),
        ("/v1beta/models?key=the-token&callback=key=***", "/v1beta/models?callback=key=***"),
    ],
)
def test_the_key_is_never_in_a_url(path: str, sent: str) -> None:
    """A server gives URLs back (where to upload to), so the key goes out as a header; nor can anybody name another
    place for it."""
    with FakeGoogle() as google, passing(google) as gateway:
        ask(gateway, path, {})
    (asked,) = google.asked
    assert (asked.path, asked.headers["x-goog-api-key"]) == (sent, "the-key")
    assert "the-token" not in str(asked)


def test_the_key_comes_back_in_no_header() -> None:
    """Whatever the other side repeats; the rest of the header is left."""
    echo = b"HTTP/1.1 200 OK\r\nx-goog-upload-url: https://api.test/u?key=the-key&id=1\r\ncontent-length: 0\r\n\r\n"
    with (
        FakeGoogle([Fault("raw", data=echo)]) as google,
        passing(google) as gateway,
        asking(gateway) as response,
    ):
        assert response.headers["x-goog-upload-url"] == "https://api.test/u?key=***&id=1"


def test_headers() -> None:
    """Headers of the client and its body go out as they are; those of its connection do not."""
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
    with FakeGoogle() as google, passing(google) as gateway:
        ask(gateway, headers=sent)
    (asked,) = google.asked
    assert asked.headers == {
        "host": f"127.0.0.1:{google.port}",
        "x-goog-api-key": "the-key",
        "user-agent": "GeminiCLI/0.61.0",
        "x-own": "kept",
        "authorization": "Basic b3du",
        "content-type": "application/json",
        "accept-encoding": "identity",
        "content-length": str(len(BODY)),
    }
    assert asked.body == BODY
    assert "b3du" not in str(gateway.requests[0].headers)


def test_an_api_below_a_path() -> None:
    """A base URL may have a path: the API's own come behind it."""
    with FakeGoogle() as google, passing(google, google.url + "/corp/gemini/") as gateway:
        ask(gateway)
    assert google.asked[0].path == "/corp/gemini" + STREAM


def test_get_has_no_body() -> None:
    """A request without a body goes out without one."""
    with FakeGoogle() as google, passing(google) as gateway:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        connection.request("GET", "/v1beta/models", headers=TOKEN)
        assert connection.getresponse().status == 404
        connection.close()
    assert google.asked[0].verb == "GET"
    assert "content-length" not in google.asked[0].headers


def test_a_large_upload() -> None:
    """20 MB reach the API as they were sent."""
    body = b'{"a":"' + b"0123456789" * 2_000_000 + b'"}'
    with FakeGoogle() as google, passing(google) as gateway:
        ask(gateway, body=body)
    assert google.asked[0].body == body


# What comes back.


@pytest.mark.parametrize("status", [200, 400, 403, 404, 429, 500, 503])
def test_any_status_passes(status: int) -> None:
    """Status, headers and body are the API's own, byte for byte."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
    reply = Reply(status=status, text="hi", details=details, headers={"retry-after": "7"}, times=None)
    with FakeGoogle([reply]) as google, passing(google) as gateway:
        with asking(gateway) as response:
            told = response.status, response.headers["content-type"], response.headers["retry-after"]
            through = response.read()
        direct = http.client.HTTPConnection("127.0.0.1", google.port, timeout=20)
        direct.request("POST", STREAM, BODY, TOKEN)
        with direct.getresponse() as response:
            assert told == (status, response.headers["content-type"], "7")
            assert through == response.read()
        direct.close()


@pytest.mark.parametrize(
    "pieces", [("the-key",), ("a the-k", "ey b"), tuple("the-key the-key"), ("t",), ("",)]
)
def test_a_key_in_pieces_of_an_error(pieces: tuple[str, ...]) -> None:
    """However an error is cut in pieces, the key in it is not shown, and the rest comes whole and in order."""
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece.encode()) for piece in pieces if piece)
    raw = b"HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    with FakeGoogle([Fault("raw", data=raw)]) as google, passing(google) as gateway:
        assert ask(gateway).decode() == "".join(pieces).replace("the-key", "*******")
    hiding = _SecretMasker("the-key")
    told = b"".join(hiding.feed(piece.encode()) for piece in pieces) + hiding.rest
    assert told.decode() == "".join(pieces).replace("the-key", "*******")


@pytest.mark.parametrize("cut", [False, True])
def test_an_error_does_not_show_the_key(cut: bool) -> None:
    """Google names the key in some errors: the client sees as many stars, however the error ends."""
    reply = Reply(status=403, error="Permission denied: Consumer 'api_key:the-key' has been suspended.")
    fault = Fault("short", reply) if cut else reply
    with FakeGoogle([fault]) as google, passing(google) as gateway, asking(gateway) as response:
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
def test_a_key_that_cannot_be_sent(key: str) -> None:
    """A key that is none is refused before it is sent, and not shown."""
    with pytest.raises(GeminidsError) as caught:
        Forwarding("https://api.test", ApiKey(key), NetworkSettings())
    assert not key.strip() or key not in str(caught.value)


def test_pieces_come_at_once() -> None:
    """A piece is with the client long before the API says the next."""
    slow = Reply(text=["one", "two"], pause=60)
    with FakeGoogle([slow]) as google, passing(google) as gateway, asking(gateway) as response:
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
def test_other_forms_of_an_answer(raw: bytes, body: bytes) -> None:
    """Whatever way HTTP has to end a body, the client gets the body whole."""
    with FakeGoogle([Fault("raw", data=raw)]) as google, passing(google) as gateway:
        assert ask(gateway) == body


def test_an_answer_of_50_mb() -> None:
    """A large answer passes whole, and is never held whole."""
    size = 50_000_000
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size)
    with FakeGoogle([Reply(text="warm up"), Fault("raw", data=raw)]) as google, passing(google) as gateway:
        ask(gateway)
        before = psutil.Process().memory_info().rss
        with asking(gateway) as response:
            read, most = 0, 0
            while piece := response.read(1_000_000):
                read += len(piece)
                most = max(most, psutil.Process().memory_info().rss)
    assert read == size
    assert most - before < 20_000_000


def test_a_slow_client_makes_the_api_wait() -> None:
    """What the client does not read is not taken from the API either."""
    sent = threading.Event()

    class Counting(FakeGoogle):
        def _answer(self, client: socket.socket, asked: object) -> bool:
            client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 50000000\r\n\r\n")
            client.settimeout(1)
            try:
                client.sendall(bytes(50_000_000))
            except TimeoutError:
                sent.set()
            return False

    with Counting() as google, passing(google) as gateway, asking(gateway) as response:
        assert response.status == 200
        assert sent.wait(20)


# Connections.


def test_connections_are_kept_and_shared() -> None:
    """Requests one after another take one connection, whoever makes them."""
    with FakeGoogle() as google:
        upstreams = [Forwarding(google.url, ApiKey(key), NetworkSettings()) for key in ("one", "two")]

        class Both:
            def answer(self, request: Request):  # type: ignore[no-untyped-def]
                return upstreams[request.n % 2].answer(request)

        with Gateway(Both()) as gateway:
            for _ in range(4):
                ask(gateway)
        assert [asked.key for asked in google.asked] == ["two", "one"] * 2
        assert google.connections == 1


def test_the_gateway_closes_what_it_has_opened() -> None:
    """Connections to the API end with the gateway."""
    with FakeGoogle() as google:
        with passing(google) as gateway:
            ask(gateway)
            assert google.open == 1
        assert google.wait_until(lambda: not google._clients)


@pytest.mark.parametrize("unasked", [b"", b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"])
def test_a_connection_that_was_closed_is_not_used(unasked: bytes) -> None:
    """A kept connection that the API has closed, with a word or without, is replaced by a new one."""
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
    replies: list[Reply | Fault] = [Fault("raw", data=raw + unasked), Reply(text="fresh")]
    with FakeGoogle(replies) as google, passing(google) as gateway:
        assert ask(gateway) == b"hi"
        assert google.wait_until(lambda: not google._clients)
        assert b"fresh" in ask(gateway)
    assert google.connections == 2


def test_a_request_that_met_a_closing_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a connection that had lain idle ends without a word, nobody has read the request: it is sent again."""
    replies: list[Reply | Fault] = [Reply(text="first"), Fault("silent"), Reply(text="again")]
    with FakeGoogle(replies) as google, passing(google) as gateway:
        ask(gateway)
        monkeypatch.setattr("geminids.gateway.forward.client._SAFE_IDLE_SECONDS", 0)
        assert b"again" in ask(gateway)
    assert [asked.connection for asked in google.asked] == [1, 1, 2]


def test_a_request_is_not_sent_twice() -> None:
    """Where the API ends a connection that was in use just now, the request may have been read: it is a fault."""
    replies: list[Reply | Fault] = [Reply(text="first"), Fault("silent"), Reply(text="again")]
    with FakeGoogle(replies) as google, passing(google) as gateway:
        ask(gateway)
        with pytest.raises(ConnectionError):
            ask(gateway)
    assert len(google.asked) == 2


def test_a_body_is_not_held_while_the_answer_comes() -> None:
    """Once the answer has begun, the request's body has gone; what was asked is known all the same."""
    seen: list[Request] = []

    class Looking(Forwarding):
        async def answer(self, request: Request) -> AsyncIterator[Part]:
            seen.append(request)
            async for part in super().answer(request):
                yield part

    told: Queue[GatewayMessage] = Queue()
    with FakeGoogle([Reply(text="one", stall=True)]) as google:
        lease = open_lease(Lease(Looking(google.url, ApiKey("the-key"), NetworkSettings()), told.put))
        lease.begin()
        connection = http.client.HTTPConnection(lease.url.partition("//")[2], timeout=20)
        body = BODY[:-1] + b', "tools": [{"functionDeclarations": [{"name": "complete_task"}]}]}'
        connection.request("POST", STREAM, body, {"x-goog-api-key": lease.token})
        assert b"one" in connection.getresponse().readline()
        assert seen[0].raw == b"" and google.asked[0].body == body
        connection.close()
        answered = told.get(timeout=10)
        lease.close()
    assert isinstance(answered, Answered)
    assert (answered.role, answered.whole) == ("subagent", False)


def test_a_client_that_leaves_ends_the_request() -> None:
    """When the CLI goes away, the API's connection is closed at once."""
    with FakeGoogle([Reply(text="one", stall=True)]) as google, passing(google) as gateway:
        with asking(gateway) as response:
            assert b"one" in response.readline()
            assert google.open == 1
        assert google.wait_until(lambda: not google._clients)
        assert gateway.wait_until(lambda: len(gateway._gone) == 1)


def test_a_client_that_leaves_in_the_middle_of_a_flood() -> None:
    """The same holds while the API sends more than the client takes, and through a lease."""
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: 50000000\r\n\r\n" + bytes(50_000_000)
    with FakeGoogle([Fault("raw", data=raw)]) as google:
        lease = open_lease(
            Lease(Forwarding(google.url, ApiKey("the-key"), NetworkSettings()), lambda told: None)
        )
        lease.begin()
        connection = http.client.HTTPConnection(lease.url.partition("//")[2], timeout=20)
        connection.request("POST", STREAM, BODY, {"x-goog-api-key": lease.token})
        assert connection.getresponse().read(1_000_000) == bytes(1_000_000)
        connection.close()
        assert google.wait_until(lambda: not google._clients)
        lease.close()


def test_a_client_that_leaves_before_the_head() -> None:
    """The same holds while the API has not said a word yet."""
    with FakeGoogle([Reply(text="one", delay=60)]) as google, passing(google) as gateway:
        client = socket.create_connection(("127.0.0.1", gateway.port))
        client.sendall(f"POST {STREAM} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        assert google.wait_until(lambda: len(google.asked) == 1)
        client.close()
        assert google.wait_until(lambda: not google._clients)
        assert gateway.wait_until(lambda: len(gateway._gone) == 1)


def test_many_at_once() -> None:
    """Fifty requests at once get their own answers, each on a connection of its own; then these are used again."""

    def echo(request: Request) -> Reply:
        return Reply(text=[request.last_user_text] * 20)

    def one(number: int) -> None:
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": f"<{number}>"}]}]}).encode()
        for _ in range(4):
            answer = ask(gateway, body=body).decode()
            right.append(answer.count(f'"<{number}>"') == 20 and answer.count('"text"') == 20)

    right: list[bool] = []
    with FakeGoogle(echo) as google, passing(google) as gateway:
        threads = [threading.Thread(target=one, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert right == [True] * 200
    assert google.connections <= 50


def test_a_key_of_a_letter_leaves_answers_as_they_are() -> None:
    """A test server may want no more: neither headers nor errors are full of stars for it."""
    replies = [Reply(text="hi"), Reply(status=400, error="a bad one")]
    with FakeGoogle(replies) as google, passing(google, key="e") as gateway:
        with asking(gateway) as response:
            assert response.headers["content-type"] == "text/event-stream"
            response.read()
        assert b"a bad one" in ask(gateway)


def test_who_brings_no_token_gets_no_key() -> None:
    """The key takes a token's place, and is never added."""
    with FakeGoogle() as google, passing(google) as gateway:
        ask(gateway, headers={})
    (asked,) = google.asked
    assert "the-key" not in str(asked)


# Other sign-ins.

RUN_TOKEN = TOKEN_PREFIX + "0" * 48
VERTEX = "/v1beta1/publishers/google/models/gemini-test:streamGenerateContent?alt=sse"
CODE_ASSIST = "/v1internal:streamGenerateContent?alt=sse"


def test_vertex_with_a_key() -> None:
    """The key replaces the token; the path is Vertex's own."""
    with FakeVertex([Reply(text="hi")], with_key="the-key") as google, passing(google) as gateway:
        assert b"hi" in ask(gateway, VERTEX)
    assert google.asked[0].path == VERTEX


def test_an_account_login() -> None:
    """The CLI's own Authorization and the wrapped body go out unchanged, the token in the path does not."""
    body = json.dumps({"model": "gemini-test", "project": "p", "request": json.loads(BODY)}).encode()
    with (
        FakeCodeAssist([Reply(text="hi")]) as google,
        Gateway(Forwarding(google.url, CliLogin(), NetworkSettings())) as gateway,
    ):
        got = ask(gateway, f"/{RUN_TOKEN}{CODE_ASSIST}", {"Authorization": f"Bearer {LOGIN}"}, body)
    assert b'data: {"response":{' in got and b"hi" in got
    (asked,) = google.asked
    assert (asked.path, asked.body, asked.model) == (CODE_ASSIST, body, "gemini-test")
    assert asked.headers["authorization"] == f"Bearer {LOGIN}"
    assert RUN_TOKEN not in str(asked)
    assert asked.usage["promptTokenCount"] == len(body) // 4


def test_an_operation_of_an_account() -> None:
    """Onboarding is followed with GET."""
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
def test_a_run_inside_a_run(key: str) -> None:
    """What goes to another gateway of ours is marked; the mark comes from nobody else, and Google never sees it."""
    with FakeGoogle() as google, passing(google, key=key) as gateway:
        ask(gateway, headers={**TOKEN, "X-Geminids-Nested": "yes"})
    assert google.asked[0].headers.get("x-geminids-nested") == ("1" if key == RUN_TOKEN else None)
    assert google.asked[0].request.is_nested is (key == RUN_TOKEN)


def test_an_account_login_inside_a_run() -> None:
    """The token of the outer run is in the path of its endpoint."""
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
def test_where_vertex_is(location: str, url: str) -> None:
    """Each location has its endpoint, as in the CLI."""
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
    """Where the API has moved to is for the user to say."""
    raw = b"HTTP/1.1 302 Found\r\nlocation: https://elsewhere.test/x\r\ncontent-length: 0\r\n\r\n"
    with FakeGoogle(lambda request: Fault("raw", data=raw)) as google, passing(google) as gateway:
        assert variable.encode() in ask(gateway, path)
