"""The same model of Google's behind other sign-ins, on loopback: Vertex, and an account (Code Assist).

with FakeVertex(script, with_key=KEY) as google:
    google.env      # what leads a CLI there, signed in
with FakeCodeAssist(script) as google:
    google.proxy    # who else was asked: the CLI wants to know whose account it is
"""

from __future__ import annotations

import json
import re
import socket
from types import TracebackType
from typing import Any, Self

from fake_google import Asked, FakeGoogle
from fake_proxy import FakeProxy

__all__ = ["FakeCodeAssist", "FakeVertex"]

_PIECE = re.compile(rb"[0-9a-f]+\r\ndata: (\{.*\})\s*\r\n", re.DOTALL)
_USER = {"currentTier": {"id": "standard-tier", "name": "made up"}, "cloudaicompanionProject": "made-up"}


class FakeVertex(FakeGoogle):
    """Vertex with a key: a publisher stands before the model."""

    @property
    def env(self) -> dict[str, str]:
        return {
            "GOOGLE_GENAI_USE_VERTEXAI": "true",
            "GOOGLE_API_KEY": self.with_key or "",
            "GOOGLE_VERTEX_BASE_URL": self.url,
        }

    def _read(self, reader: Any, client: socket.socket, connection: int) -> Asked | None:
        asked = super()._read(reader, client, connection)
        if asked is not None:
            asked.path = asked.path.replace("/publishers/google/models/", "/models/")
        return asked


class FakeCodeAssist(FakeGoogle):
    """What an account is served by: the model is named in the body, and the answer wrapped."""

    @property
    def env(self) -> dict[str, str]:
        return {
            "GOOGLE_GENAI_USE_GCA": "true",
            "GOOGLE_CLOUD_ACCESS_TOKEN": "ya29.not-a-real-token",
            "GOOGLE_CLOUD_PROJECT": "made-up",
            "CODE_ASSIST_ENDPOINT": self.url,
            "HTTPS_PROXY": self.proxy.url,
            "NO_PROXY": "127.0.0.1",
        }

    def __enter__(self) -> Self:
        # Nothing leaves this machine: all that is not ours is asked of a proxy that says no.
        self.proxy = FakeProxy(status=403)
        self.proxy.__enter__()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.proxy.__exit__(kind, error, trace)

    def _read(self, reader: Any, client: socket.socket, connection: int) -> Asked | None:
        asked = super()._read(reader, client, connection)
        if asked is not None and "enerateContent" in asked.path:
            whole = json.loads(asked.body)
            asked.body = json.dumps(whole["request"]).encode()
            asked.path = f"/v1beta/models/{whole['model']}:{asked.path.partition(':')[2]}"
        return asked

    def _answer(self, client: socket.socket, asked: Asked) -> bool:
        if asked.request.method == "stream":
            return super()._answer(_Wrapping(client), asked)  # type: ignore[arg-type]
        told = json.dumps(_USER if "loadCodeAssist" in asked.path else {}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(told)}\r\n\r\n"
        client.sendall(head.encode() + told)
        return True


class _Wrapping:
    """A connection on which each piece of an answer is a `response`."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def sendall(self, data: bytes) -> None:
        piece = _PIECE.fullmatch(data)
        if piece is not None:
            body = b'data: {"response":%s}\n\n' % piece[1]
            data = b"%x\r\n%s\r\n" % (len(body), body)
        self._client.sendall(data)
