"""The processes of the gateway's benchmark: `google` plays the API, `gateway` stands before it."""

from __future__ import annotations

import resource
import socket
import sys
import threading
import time
from typing import Any

import msgspec

__all__ = ["chunk"]

KEY = "the-key-of-the-benchmark"


def chunk(number: int, last: bool = False) -> bytes:
    """One event as the API sends it; its text is some four tokens."""
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
    """Answers with as many chunks as the model's name says (`words-10000`), each written by itself; a model at a pace
    (`paced-words-10000`) sends ten every two milliseconds."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    say({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"})
    made: dict[int, list[bytes]] = {}

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
                if count not in made:
                    made[count] = [chunk(number, number == count - 1) for number in range(count)]
                client.sendall(_HEAD)
                began = time.monotonic()
                for number, piece in enumerate(made[count], 1):
                    client.sendall(piece)
                    if b"paced-" in line and number % 10 == 0:
                        time.sleep(max(0, began + number * 0.0002 - time.monotonic()))
                client.sendall(b"0\r\n\r\n")

    while True:
        threading.Thread(target=_quietly, args=(serve, listener.accept()[0]), daemon=True).start()


def _quietly(serve: Any, client: socket.socket) -> None:
    try:
        serve(client)
    except OSError:
        pass  # the client has gone


def gateway(upstream: str) -> None:
    """A gateway with one lease. A line on stdin asks for the CPU time and the memory so far."""
    from geminids.gateway.forward.credential import ApiKey
    from geminids.gateway.forward.forward import Forwarding
    from geminids.gateway.forward.network_settings import NetworkSettings
    from geminids.gateway.lease import Lease
    from geminids.gateway.registry import open_lease

    opened = open_lease(Lease(Forwarding(upstream, ApiKey(KEY), NetworkSettings()), lambda told: None))
    opened.begin()
    say({"url": opened.url, "token": opened.token})
    for _ in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        say({"cpu": used.ru_utime + used.ru_stime, "most_kb": used.ru_maxrss})


def say(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1] == "google":
        google()
    else:
        gateway(sys.argv[2])
