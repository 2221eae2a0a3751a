"""Processes of the gateway benchmark: `google` imitates the API, `gateway` forwards to it."""

from __future__ import annotations

import resource
import socket
import sys
import threading
import time
from typing import Any

import msgspec

from geminids.gateway.forward.credential import ApiKey
from geminids.gateway.forward.forward import Forwarding
from geminids.gateway.forward.network_settings import NetworkSettings
from geminids.gateway.lease import Lease
from geminids.gateway.registry import open_lease

__all__ = ["chunk"]

KEY = "the-key-of-the-benchmark"


def chunk(number: int, last: bool = False) -> bytes:
    """Return one event as the API sends it, with a text of about four tokens."""
    response: dict[str, Any] = {
        "candidates": [
            {"content": {"parts": [{"text": f"word {number:05} of it "}], "role": "model"}, "index": 0}
        ],
        "modelVersion": "gemini-2.5-flash",
    }
    if last:
        response["candidates"][0]["finishReason"] = "STOP"
        response["usageMetadata"] = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
    event = b"data: " + msgspec.json.encode(response) + b"\r\n\r\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def google() -> None:
    """Serve the API. The model name has the number of chunks in an answer (`words-10000`).

    Each chunk is one write.

    A paced model (`paced-words-10000`) sends ten chunks every two milliseconds.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    write({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"})
    answers: dict[int, list[bytes]] = {}

    def serve(client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client, client.makefile("rb") as reader:
            while line := reader.readline():
                size = 0
                while header := reader.readline().strip():
                    name, _, value = header.partition(b":")
                    size = int(value) if name.lower() == b"content-length" else size
                reader.read(size)
                count = int(line.partition(b"words-")[2].partition(b":")[0] or 1)
                if count not in answers:
                    answers[count] = [chunk(number, number == count - 1) for number in range(count)]
                client.sendall(_HEAD)
                began = time.monotonic()
                for number, piece in enumerate(answers[count], 1):
                    client.sendall(piece)
                    if b"paced-" in line and number % 10 == 0:
                        time.sleep(max(0, began + number * 0.0002 - time.monotonic()))
                client.sendall(b"0\r\n\r\n")

    while True:
        threading.Thread(target=_ignore_os_errors, args=(serve, listener.accept()[0]), daemon=True).start()


def _ignore_os_errors(serve: Any, client: socket.socket) -> None:
    try:
        serve(client)
    except OSError:
        pass  # the client is gone


def gateway(upstream: str) -> None:
    """Run a gateway with one lease. It prints CPU time and peak memory for each line on stdin."""
    opened = open_lease(Lease(Forwarding(upstream, ApiKey(KEY), NetworkSettings()), lambda message: None))
    opened.begin()
    write({"url": opened.url, "token": opened.token})
    for _ in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        write({"cpu": used.ru_utime + used.ru_stime, "peak_kb": used.ru_maxrss})


def write(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1] == "google":
        google()
    else:
        gateway(sys.argv[2])
