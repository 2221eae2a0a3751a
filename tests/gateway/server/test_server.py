"""Tests of the gateway with a plain HTTP client."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from geminids.errors import GeminidsError
from geminids.gateway import Call, Gateway, Reply, Request, Script
from geminids.gateway.upstream import Body, Head, Part, UpstreamFault

STREAM = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"
HEAD = f"POST {STREAM} HTTP/1.1\r\nhost: x\r\n"
NO_MORE = "(the script has no further reply)"


def body_of(text: str = "hello", **more: Any) -> bytes:
    return json.dumps({"contents": [{"role": "user", "parts": [{"text": text}]}], **more}).encode()


def text_of(answer: str) -> str:
    events = [json.loads(line.removeprefix("data: ")) for line in answer.splitlines() if line]
    parts = [part for event in events for part in event["candidates"][0]["content"].get("parts", ())]
    return "".join(part.get("text", "") for part in parts if not part.get("thought"))


class Client:
    """A plain HTTP client. `close` closes everything that it opened."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def connect(self, gateway: Gateway) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        self._open.append(connection)
        return connection

    def begin(
        self, gateway: Gateway, text: str = "hello", path: str = STREAM
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self.connect(gateway)
        connection.request("POST", path, body_of(text), {"x-goog-api-key": "not-a-real-key"})
        response = connection.getresponse()
        self._open.append(response)
        return connection, response

    def ask(self, gateway: Gateway, text: str = "hello", path: str = STREAM) -> tuple[int, str]:
        connection, response = self.begin(gateway, text, path)
        answer = response.read().decode()
        connection.close()
        return response.status, answer

    def close(self) -> None:
        for opened in reversed(self._open):
            opened.close()


@pytest.fixture
def client() -> Iterator[Client]:
    opened = Client()
    yield opened
    opened.close()


# Answers.


def test_text_is_streamed(client: Client) -> None:
    """A reply is sent as server-sent events, chunk by chunk."""
    with Gateway([Reply(text=["Hel", "lo"])]) as gateway:
        _, response = client.begin(gateway)
        answer = response.read().decode()
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["transfer-encoding"] == "chunked"
    assert [text_of(event) for event in answer.split("\r\n\r\n")] == ["Hel", "lo", ""]


def test_replies_are_used_in_order(client: Client) -> None:
    """Each reply serves `times` requests, in order.
    Then the default says that there are no more."""
    with Gateway([Reply(text="one"), Reply(text="two", times=2)]) as gateway:
        answers = [text_of(client.ask(gateway)[1]) for _ in range(5)]
    assert answers == ["one", "two", "two", NO_MORE, NO_MORE]


def test_when_is_preferred(client: Client) -> None:
    """A reply with `when` serves only matching requests and is preferred to ordered replies."""
    with Gateway([Reply(text="ordered"), Reply(text="rain", when="(?i)weather")]) as gateway:
        answers = [text_of(client.ask(gateway, text)[1]) for text in ("the Weather?", "the weather?")]
    assert answers == ["rain", "ordered"]


def test_default_of_a_script(client: Client) -> None:
    """The default of a script serves every request that no other reply serves."""
    with Gateway(Script(default=Reply(status=503, error="closed", times=None))) as gateway:
        assert [client.ask(gateway)[0] for _ in range(2)] == [503, 503]


def test_generate_does_not_use_up_stream_replies(client: Client) -> None:
    """A generateContent request uses only replies with `method: generate`, else a default reply."""
    path = "/v1beta/models/m:generateContent"
    with Gateway([Reply(text="for the user"), Reply(text="named", method="generate")]) as gateway:
        answers = [json.loads(client.ask(gateway, path=path)[1]) for _ in range(2)]
        assert text_of(client.ask(gateway)[1]) == "for the user"
    texts = [answer["candidates"][0]["content"]["parts"][0]["text"] for answer in answers]
    assert texts == ["named", NO_MORE]


ROUTER = {"complexity_reasoning": {"type": "STRING"}, "complexity_score": {"type": "INTEGER"}}
CHOICE = {"reasoning": {"type": "STRING"}, "model_choice": {"type": "STRING", "enum": ["pro", "flash"]}}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (ROUTER, {"complexity_reasoning": "scripted", "complexity_score": 1}),
        (CHOICE, {"reasoning": "scripted", "model_choice": "flash"}),
    ],
)
def test_json_requests_get_json(client: Client, properties: dict[str, Any], expected: dict[str, Any]) -> None:
    """A request with a response schema gets JSON that matches the schema."""
    schema = {"type": "OBJECT", "properties": properties}
    config = {"responseMimeType": "application/json", "responseJsonSchema": schema}
    with Gateway() as gateway:
        connection = client.connect(gateway)
        connection.request("POST", "/v1beta/models/m:generateContent", body_of(generationConfig=config))
        response = json.loads(connection.getresponse().read())
    assert json.loads(response["candidates"][0]["content"]["parts"][0]["text"]) == expected


def test_count_tokens(client: Client) -> None:
    """countTokens returns a number and uses up no reply."""
    with Gateway([Reply(text="hi")]) as gateway:
        status, answer = client.ask(gateway, path="/v1beta/models/m:countTokens")
        assert text_of(client.ask(gateway)[1]) == "hi"
    assert status == 200
    assert json.loads(answer)["totalTokens"] > 0


def test_picture_counts_few_tokens(client: Client) -> None:
    """An inline picture of 8 MB counts less than 500 tokens.
    Counted as base64 text it would exceed the model's limit, and the CLI would not send it."""
    picture = {"inlineData": {"mimeType": "image/png", "data": "A" * 8_000_000}}
    body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "look"}, picture]}]})
    with Gateway() as gateway:
        connection = client.connect(gateway)
        connection.request("POST", "/v1beta/models/m:countTokens", body)
        assert json.loads(connection.getresponse().read())["totalTokens"] < 500


@pytest.mark.parametrize("path", ["/", "/v1beta/models", "/v1beta/models/m:embedContent", "/v1/models/m:x"])
def test_unknown_path_is_404(client: Client, path: str) -> None:
    """The server answers an unknown path with a Google-style 404."""
    with Gateway() as gateway:
        status, answer = client.ask(gateway, path=path)
    assert (status, json.loads(answer)["error"]["status"]) == (404, "NOT_FOUND")


def test_error_reply(client: Client) -> None:
    """An error reply has the scripted status, message and headers."""
    with Gateway([Reply(status=429, error="slow down", headers={"Retry-After": "7"})]) as gateway:
        _, response = client.begin(gateway)
        error = json.loads(response.read())["error"]
    assert (response.status, response.headers["retry-after"]) == (429, "7")
    assert (error["message"], error["status"]) == ("slow down", "RESOURCE_EXHAUSTED")


def test_garbage_is_sent_unchanged(client: Client) -> None:
    """The text of a `garbage` reply is sent unchanged."""
    with Gateway([Reply(garbage="data: {not json\n\n<html>")]) as gateway:
        assert client.ask(gateway) == (200, "data: {not json\n\n<html>")


def test_delay_and_pause(client: Client) -> None:
    """`delay` holds back the response head, and `pause` each further chunk."""
    with Gateway([Reply(text=["a", "b"], delay=0.1, pause=0.1)]) as gateway:
        started = time.monotonic()
        _, response = client.begin(gateway)
        head = time.monotonic() - started
        response.read()
        whole = time.monotonic() - started
    assert head >= 0.1
    assert whole >= 0.2


def test_stalled_answer(client: Client) -> None:
    """A stalled answer sends its head and chunks and never ends.
    The gateway notices when the client disconnects."""
    with Gateway([Reply(text="so far", stall=True)]) as gateway:
        connection, response = client.begin(gateway)
        assert text_of(response.readline().decode()) == "so far"
        assert (gateway.gone, gateway.open_connections) == ([], 1)
        response.close()
        connection.close()
        assert gateway.wait_until(lambda: gateway.open_connections == 0)
        assert gateway.gone == gateway.requests
        assert gateway.errors == []


def test_cut_resets_the_connection(client: Client) -> None:
    """A cut answer ends with a connection reset, so no client can take it for complete."""
    with Gateway([Reply(text="half", cut=True)]) as gateway:
        _, response = client.begin(gateway)
        assert text_of(response.readline().decode()) == "half"
        with pytest.raises(ConnectionResetError):
            response.read()
        assert gateway.gone == []


def test_callable_script(client: Client) -> None:
    """A callable script returns the reply for each request.
    If it returns None, the built-in default is sent."""

    def script(request: Request) -> Reply | None:
        return Reply(text=request.last_user_text.upper()) if request.last_user_text != "skip" else None

    with Gateway(script) as gateway:
        answers = [text_of(client.ask(gateway, text)[1]) for text in ("loud", "skip")]
    assert answers == ["LOUD", NO_MORE]


def test_failing_callable_script(client: Client) -> None:
    """A callable script that raises causes a 500 and an entry in `errors`.
    The gateway continues."""

    def script(request: Request) -> Reply:
        raise RuntimeError("boom")

    with Gateway(script) as gateway:
        assert [client.ask(gateway)[0] for _ in range(2)] == [500, 500]
        assert gateway.errors[0] == "the answer to request 1 failed: RuntimeError: boom"


def test_custom_upstream(client: Client) -> None:
    """Any object with an `answer(request)` method can be the upstream of a gateway.
    `reply` then raises an error."""

    class Echo:
        async def answer(self, request: Request) -> AsyncIterator[Part]:
            yield Head(200)
            yield Body(request.last_user_text.encode())

    with Gateway(Echo()) as gateway:
        assert client.ask(gateway, "to and fro") == (200, "to and fro")
        with pytest.raises(GeminidsError, match="does not answer from a script"):
            gateway.reply(text="no")


def test_upstream_fails_after_the_head(client: Client) -> None:
    """If an upstream fails after the head, the connection is reset and the error is recorded."""

    class Broken:
        async def answer(self, request: Request) -> AsyncIterator[Part]:
            yield Head(200)
            yield Body(b"half")
            raise RuntimeError("boom")

    with Gateway(Broken()) as gateway:
        _, response = client.begin(gateway)
        with pytest.raises(ConnectionResetError):
            response.read()
        assert gateway.errors == ["the answer to request 1 failed: RuntimeError: boom"]


# Requests.


def test_requests_are_recorded_without_the_key(client: Client) -> None:
    """Requests are recorded in order, and the key is masked in their headers."""
    with Gateway() as gateway:
        client.ask(gateway, "one")
        client.ask(gateway, "two")
        assert gateway.wait_for_requests(2)
        first, second = gateway.requests
    assert (first.n, first.method, first.model, first.last_user_text) == (1, "stream", "gemini-test", "one")
    assert (second.n, second.last_user_text, second.verb) == (2, "two", "POST")
    assert (first.headers["x-goog-api-key"], first.key) == ("***", "not-a-real-key")


def test_wait_for_requests_times_out() -> None:
    """`wait_for_requests` returns False when its time is over."""
    with Gateway() as gateway:
        assert not gateway.wait_for_requests(1, timeout=0.01)


def test_keep_limits_stored_requests(client: Client) -> None:
    """With `keep`, only the last requests are stored. Their numbers keep counting."""
    with Gateway(keep=1) as gateway:
        for _ in range(3):
            client.ask(gateway)
        assert [request.n for request in gateway.requests] == [3]
        assert gateway.wait_for_requests(3)


def test_replies_added_later(client: Client) -> None:
    """Replies can be added while the gateway runs, also in the short form."""
    with Gateway() as gateway:
        added = gateway.reply(calls=[("glob", {"pattern": "*"})], usage={"input": 3})
        gateway.when("rain", text="wet")
        assert added.calls == [Call("glob", {"pattern": "*"})]
        assert text_of(client.ask(gateway, "rain?")[1]) == "wet"
        assert "functionCall" in client.ask(gateway)[1]


# HTTP.


def test_keep_alive(client: Client) -> None:
    """One connection serves many requests, with answers of known and unknown length."""
    with Gateway([Reply(text="a"), Reply(status=500), Reply(text="b")]) as gateway:
        connection = client.connect(gateway)
        statuses = []
        for _ in range(3):
            connection.request("POST", STREAM, body_of())
            response = connection.getresponse()
            statuses.append(response.status)
            response.read()
        assert (statuses, gateway.open_connections) == ([200, 500, 200], 1)


def test_chunked_request(client: Client) -> None:
    """The server accepts a chunked request body."""
    whole = body_of("in chunks")
    with Gateway() as gateway:
        connection = client.connect(gateway)
        connection.request("POST", STREAM, iter([whole[:20], whole[20:]]), encode_chunked=True)
        connection.getresponse().read()
        assert gateway.requests[0].last_user_text == "in chunks"


def test_pipelined_requests() -> None:
    """A second request that is sent before the first answer is served, too."""
    request = f"{HEAD}content-length: 2\r\n\r\n{{}}".encode()
    with Gateway([Reply(text="a", delay=0.05), Reply(text="b")]) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as raw:
            raw.sendall(request * 2)
            received = b""
            while received.count(b"\r\n0\r\n\r\n") < 2:
                received += raw.recv(65536)
        assert received.index(b'"a"') < received.index(b'"b"')


def test_big_body(client: Client) -> None:
    """A request body of 30 MB arrives completely; images and videos are sent inline."""
    big = "x" * 30_000_000
    with Gateway() as gateway:
        client.ask(gateway, big)
        assert gateway.requests[0].last_user_text == big


def test_expect_continue() -> None:
    """The server answers `expect: 100-continue` before the client sends the body."""
    with Gateway() as gateway, socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as raw:
        raw.sendall(f"{HEAD}content-length: 2\r\nexpect: 100-continue\r\n\r\n".encode())
        assert raw.recv(1000).startswith(b"HTTP/1.1 100 ")
        raw.sendall(b"{}")
        assert raw.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET\r\n\r\n"], ids=["tls", "cut"]
)
def test_bad_client_is_refused(client: Client, sent: bytes) -> None:
    """A client that does not use HTTP gets a 400 and an entry in `errors`.
    The gateway continues."""
    with Gateway() as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as raw:
            raw.sendall(sent)
            assert raw.recv(1000).startswith(b"HTTP/1.1 400 ")
        assert "invalid HTTP" in gateway.errors[0]
        assert client.ask(gateway)[0] == 200


def test_clients_that_disconnect_early(client: Client) -> None:
    """Connections that close before or during a request cause no error and no request."""
    with Gateway() as gateway:
        for sent in ("", "POST /v1", f"{HEAD}content-length: 99\r\n\r\n{{"):
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as raw:
                raw.sendall(sent.encode())
        assert client.ask(gateway)[0] == 200
        assert gateway.wait_until(lambda: gateway.open_connections == 0)
        assert len(gateway.requests) == 1


def test_burst_of_connections(client: Client) -> None:
    """200 simultaneous connections are all served."""
    with Gateway(Script(default=Reply(text="ok", times=None))) as gateway:
        barrier = threading.Barrier(200)

        def ask(_: int) -> tuple[int, str]:
            barrier.wait()
            return client.ask(gateway)

        with ThreadPoolExecutor(200) as pool:
            answers = list(pool.map(ask, range(200)))
        assert [(status, text_of(answer)) for status, answer in answers] == [(200, "ok")] * 200
        assert len(gateway.requests) == 200


# Start and close.


def test_close_drops_stalled_connections(client: Client) -> None:
    """`close` drops stalled and idle connections and leaves neither a thread nor an open port."""
    gateway = Gateway(Script(default=Reply(text="a", stall=True, times=None))).start()
    opened = [client.begin(gateway) for _ in range(20)]
    client.connect(gateway).connect()
    assert gateway.wait_until(lambda: gateway.open_connections == 21)
    gateway.close()
    assert "geminids-gateway" not in {thread.name for thread in threading.enumerate()}
    assert gateway.open_connections == 0
    with pytest.raises(ConnectionRefusedError):
        client.connect(gateway).connect()
    for _, response in opened:
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            response.read()
    gateway.close()


def test_close_is_quick(client: Client) -> None:
    """`close` with stalled connections takes less than 0.2 s: the best of
    five, on a busy machine."""
    durations = []
    for _ in range(5):
        gateway = Gateway(Script(default=Reply(text="a", stall=True, times=None))).start()
        for _ in range(5):
            client.begin(gateway)
        started = time.monotonic()
        gateway.close()
        durations.append(time.monotonic() - started)
    assert min(durations) < 0.2


@pytest.mark.timeout(30)
def test_close_with_a_client_that_does_not_read() -> None:
    """A client that does not read its answer does not delay `close`."""
    gateway = Gateway([Reply(text="x" * 30_000_000)]).start()
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as raw:
        raw.sendall(f"{HEAD}content-length: 2\r\n\r\n{{}}".encode())
        assert raw.recv(10)
        gateway.close()


def test_close_before_start() -> None:
    """A gateway that is closed early ends without an error, and it cannot be started twice."""
    gateway = Gateway()
    gateway.close()
    gateway.start().close()
    assert gateway.errors == []
    with pytest.raises(GeminidsError, match="already been started"):
        gateway.start()


def test_port_in_use() -> None:
    """If the port is in use, `start` raises an error that contains the address."""
    with Gateway() as first, pytest.raises(GeminidsError, match=r"cannot listen on 127\.0\.0\.1"):
        Gateway(port=first.port).start()


def test_not_started() -> None:
    """The address of a gateway that was not started raises an error."""
    with pytest.raises(GeminidsError, match="not been started"):
        _ = Gateway().url


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_inside_an_event_loop(client: Client, backend: str) -> None:
    """The gateway works while an asyncio or trio event loop runs."""
    import anyio
    import anyio.to_thread

    async def main() -> tuple[int, str]:
        with Gateway([Reply(text="hi")]) as gateway:
            return await anyio.to_thread.run_sync(client.ask, gateway)

    assert text_of(anyio.run(main, backend=backend)[1]) == "hi"


# Upstreams that fail.


class FailingUpstream:
    """An upstream that raises an error, before or after it has sent something."""

    def __init__(self, error: Exception, *, after_head: bool = False) -> None:
        self._error = error
        self._after_head = after_head

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        if self._after_head:
            yield Head(200, {"content-type": "text/event-stream"})
            yield Body(b"sent")
        raise self._error


def test_system_error_in_an_upstream(client: Client) -> None:
    """An OSError inside an upstream causes a 500. It is not mistaken for a client that left."""
    with Gateway(FailingUpstream(OSError(28, "No space left on device"))) as gateway:
        assert client.ask(gateway)[0] == 500
        assert gateway.gone == [] and "No space left" in gateway.errors[0]


@pytest.mark.parametrize("after_head", [False, True])
def test_upstream_fault_breaks_the_connection(client: Client, after_head: bool) -> None:
    """An UpstreamFault breaks the client's connection, before or after the head."""
    fault = UpstreamFault("cut", "the line is dead")
    with Gateway(FailingUpstream(fault, after_head=after_head)) as gateway:
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            client.ask(gateway)
        assert gateway.errors == ["request 1: cut: the line is dead"]


def test_upstream_is_closed_when_the_client_leaves(client: Client) -> None:
    """When the client disconnects, the upstream's generator is closed at once.
    This holds even while the gateway waits for the client to read."""
    ended = threading.Event()

    class Flood:
        async def answer(self, request: Request) -> AsyncIterator[Part]:
            try:
                yield Head(200)
                while True:
                    yield Body(bytes(1_000_000))
            finally:
                ended.set()

    with Gateway(Flood()) as gateway:
        connection, response = client.begin(gateway)
        assert response.read(10) == bytes(10)
        response.close()
        connection.close()
        assert ended.wait(10)
