"""A fake Gemini API server on loopback, with plain sockets and threads, that replies from a script.

    with FakeGoogle([Reply(text="hi"), Fault("cut_in_chunk", Reply(text=["a", "b"]), after=1)]) as google:
        google.url          # http://127.0.0.1:PORT, or https://localhost:PORT with `tls=certificate(folder)`
        google.asked[0]     # the first request: verb, path, headers (lower case), body, key, model, and
                            # `usage`: the usageMetadata that was sent in its answer, {} if there was none
        google.counted()    # the sum of all `usage`, by name
        google.open         # the number of connected clients
        google.wait_until(lambda: len(google.asked) == 2)

The script is a list of `Reply` and `Fault` for the requests of the conversation, in order, or a
function `(Request) -> Reply | Fault | None`. A request without a scripted answer gets the default
reply of the scripted gateway (the router of `auto`, `countTokens`, "(the script has no further
reply)"). `with_key="k"`: requests without this key get the 400 answer of the real API.
"""

from __future__ import annotations

import json
import re
import select
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from geminids.gateway.request import Request
from geminids.gateway.script.encode import parts_of
from geminids.gateway.script.replies import Reply
from geminids.gateway.script.scripted_upstream import Scripted
from geminids.gateway.upstream import Body, Cut, Hang, Head, Wait

__all__ = ["FakeGoogle", "Fault", "ReceivedRequest", "certificate"]

FaultKind = Literal[
    "cut_in_chunk",  # chunked encoding: send half of a chunk, then close the connection
    "cut_between_chunks",  # chunked encoding: close the connection without the last chunk
    "reset",  # reset the connection (RST)
    "short",  # close the connection before the announced content-length is reached
    "silent",  # read the request, then close the connection without an answer
    "garbage",  # send bytes that are not HTTP
    "raw",  # send `data` unchanged
]


@dataclass(frozen=True)
class Fault:
    """A network fault, after `after` pieces of the reply."""

    kind: FaultKind
    reply: Reply = field(default_factory=lambda: Reply(text=["one", "two", "three"]))
    after: int = 1
    data: bytes = b"\x16\x03\x01 this is no HTTP\r\n\r\n"


@dataclass
class ReceivedRequest:
    """One received request, and the token counts that the server sent in its answer."""

    n: int
    at: float
    verb: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    usage: dict[str, int] = field(default_factory=dict)
    status: int | None = None
    whole: bool = False

    @property
    def request(self) -> Request:
        return Request.read(self.n, self.at, self.verb, self.path, self.headers, self.body)

    @property
    def key(self) -> str | None:
        return self.request.key

    @property
    def model(self) -> str | None:
        return self.request.model


Answer = Reply | Fault
Script = Sequence[Answer] | Callable[[Request], Answer | None] | None
_USAGE = re.compile(rb'"usageMetadata":(\{[^{}]*\})')


class FakeGoogle:
    """A fake Gemini API server with one thread for each connection."""

    def __init__(
        self, script: Script = None, *, tls: Path | None = None, with_key: str | None = None, port: int = 0
    ) -> None:
        """Start to listen. `tls` is a file with a certificate and its key, see `certificate`."""
        self.asked: list[ReceivedRequest] = []
        self.with_key = with_key
        self._function = script if callable(script) else None
        self._remaining: list[Answer] = list(script) if script is not None and not callable(script) else []
        self._utility_replies = Scripted()
        self._changed = threading.Condition()
        self._clients: dict[int, socket.socket] = {}
        self._connections = 0
        self._tls: ssl.SSLContext | None = None
        if tls is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(tls)
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}" if self._tls else f"http://127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        with self._changed:
            return len(self._clients)

    @property
    def connections(self) -> int:
        """The number of connections that were ever accepted."""
        return self._connections

    def counted(self) -> Counter[str]:
        with self._changed:
            return sum((Counter(asked.usage) for asked in self.asked), Counter())

    def wait_until(self, holds: Callable[[], bool], timeout: float = 10) -> bool:
        with self._changed:
            return self._changed.wait_for(holds, timeout)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="fake-google", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        with self._changed:
            clients = list(self._clients.values())
        for client in clients:
            try:
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.wait_until(lambda: not self._clients)

    # The methods below run in the server's threads.

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self._connections += 1
                number = self._connections
                self._clients[number] = client
                self._changed.notify_all()
            threading.Thread(target=self._serve, args=(client, number), daemon=True).start()

    def _serve(self, client: socket.socket, number: int) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
                with self._changed:
                    self._clients[number] = client
            with client, client.makefile("rb") as reader:
                while (asked := self._read(reader, client, number)) and self._answer(client, asked):
                    asked.whole = True
        except (OSError, ValueError):
            pass
        finally:
            client.close()
            with self._changed:
                self._clients.pop(number, None)
                self._changed.notify_all()

    def _read(self, reader: Any, client: socket.socket, connection: int) -> ReceivedRequest | None:
        line = reader.readline().decode("latin-1").split()
        if len(line) < 3:
            return None
        headers = {}
        while text := reader.readline().decode("latin-1").strip():
            name, _, value = text.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b"".join(_read_body(reader, headers))
        with self._changed:
            asked = ReceivedRequest(
                len(self.asked) + 1, time.time(), line[0], line[1], headers, body, connection
            )
            self.asked.append(asked)
            self._changed.notify_all()
        return asked

    def _answer(self, client: socket.socket, asked: ReceivedRequest) -> bool:
        """Answer a request. Return whether the connection stays open."""
        request = asked.request
        answer = self._pick(request)
        fault = answer if isinstance(answer, Fault) else None
        if fault is not None and fault.kind in ("silent", "garbage", "raw"):
            client.sendall(b"" if fault.kind == "silent" else fault.data)
            return False
        reply = answer.reply if isinstance(answer, Fault) else answer
        chunked, pieces = True, 0
        for part in parts_of(reply, request):
            if isinstance(part, Wait):
                if select.select([client], [], [], part.seconds)[0]:
                    return False  # the client has disconnected, or the server closes
            elif isinstance(part, Head):
                asked.status = part.status
                chunked = "content-length" not in part.headers and (fault is None or fault.kind != "short")
                client.sendall(_encode_head(part, chunked))
            elif isinstance(part, Body):
                if fault is not None and pieces == fault.after:
                    return _break_off(client, fault, part.data)
                pieces += 1
                for usage in _USAGE.findall(part.data):
                    asked.usage = json.loads(usage)
                client.sendall(b"%x\r\n%s\r\n" % (len(part.data), part.data) if chunked else part.data)
            elif isinstance(part, Hang):
                client.recv(1)  # send nothing more, and wait until the client disconnects
                return False
            elif isinstance(part, Cut):
                return _reset(client)
        if fault is not None:
            return _break_off(client, fault, b"data: {}\r\n\r\n")
        if chunked:
            client.sendall(b"0\r\n\r\n")
        return True

    def _pick(self, request: Request) -> Answer:
        if self.with_key is not None and request.key != self.with_key:
            message = "API key not valid. Please pass a valid API key."
            return Reply(status=400, error=message, times=None)
        if self._function is not None:
            answer = self._function(request)
            return self._utility_replies.pick(request) if answer is None else answer
        with self._changed:
            for at, answer in enumerate(self._remaining):
                reply = answer.reply if isinstance(answer, Fault) else answer
                if reply.method in (request.method, "any"):
                    if reply.times is not None:
                        del self._remaining[at]
                    return answer
        return self._utility_replies.pick(request)


def _read_body(reader: Any, headers: dict[str, str]) -> Iterator[bytes]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int(reader.readline().split(b";")[0], 16):
            yield reader.read(size)
            reader.readline()
        reader.readline()
    else:
        yield reader.read(int(headers.get("content-length", "0")))


def _encode_head(head: Head, chunked: bool) -> bytes:
    headers = dict(head.headers)
    if chunked:
        headers["transfer-encoding"] = "chunked"
    elif "content-length" not in headers:
        headers["content-length"] = "100000"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {head.status} As Scripted\r\n{lines}\r\n".encode("latin-1")


def _break_off(client: socket.socket, fault: Fault, data: bytes) -> bool:
    if fault.kind == "cut_in_chunk":
        client.sendall(b"%x\r\n%s" % (len(data), data[: len(data) // 2]))
    elif fault.kind == "reset":
        return _reset(client)
    return False


def _reset(client: socket.socket) -> bool:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def certificate(folder: Path, name: str = "localhost") -> Path:
    """Create a self-signed certificate for this name and 127.0.0.1. Return one file with the
    certificate and its key, which is also the CA file for a client."""
    key, created, both = folder / "key.pem", folder / "cert.pem", folder / "google.pem"
    names = f"subjectAltName=DNS:{name},IP:127.0.0.1"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += [
        "-keyout",
        str(key),
        "-out",
        str(created),
        "-days",
        "2",
        "-subj",
        f"/CN={name}",
        "-addext",
        names,
    ]
    subprocess.run(argv, check=True, capture_output=True)
    both.write_bytes(created.read_bytes() + key.read_bytes())
    both.chmod(0o600)
    return both
