"""Fake API servers on loopback for other sign-ins: Vertex with a key or a project, and Code Assist.

with FakeVertex(script, with_key=KEY) as google:
    google.env          # the environment variables with which a CLI signs in at this server
with FakeVertexProject(script, tmp_path) as google:
    google.env          # the same for machine credentials; `google.tokens` issues the access tokens
with FakeCodeAssist(script) as google:
    google.proxy.asked  # the other servers to which the CLI tried to connect
with FakeTokenServer() as tokens:
    tokens.url, tokens.issued, tokens.requests
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from fake_google import Answer, FakeGoogle, Script
from fake_proxy import FakeProxy
from geminids.gateway.request import Request
from geminids.gateway.script.replies import Reply

__all__ = [
    "LOGIN",
    "FakeCodeAssist",
    "FakeTokenServer",
    "FakeVertex",
    "FakeVertexProject",
    "authorized_user_file",
    "service_account_file",
]

LOGIN = "ya29.not-a-real-token"


class FakeVertex(FakeGoogle):
    """The Vertex API with a key. Its paths contain a publisher before the model."""

    @property
    def env(self) -> dict[str, str]:
        return {
            "GOOGLE_GENAI_USE_VERTEXAI": "true",
            "GOOGLE_API_KEY": self.with_key or "",
            "GOOGLE_VERTEX_BASE_URL": self.url,
        }


class FakeTokenServer:
    """Issues access tokens `ya29.fake-1`, `ya29.fake-2`, … to any client; also a metadata server.

    `lifetime` is the `expires_in` of the next tokens. `failures` are answers (status, body) that
    the server sends before it issues tokens.
    """

    def __init__(self, *, lifetime: int = 3600) -> None:
        self.lifetime = lifetime
        self.issued: list[str] = []
        self.revoked: set[str] = set()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """(verb, path, form or headers) of each request for a token."""
        self.failures: list[tuple[int, Any]] = []
        self.gate = threading.Event()
        """Requests wait until this event is set."""
        self.gate.set()
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server._answer(self, {name.lower(): value for name, value in self.headers.items()})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                server._answer(self, {name: values[0] for name, values in parse_qs(body).items()})

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.host = f"127.0.0.1:{self._http.server_address[1]}"
        self.url = f"http://{self.host}/token"

    def is_live(self, token: str | None) -> bool:
        with self._lock:
            return token in self.issued and token not in self.revoked

    def _answer(self, handler: BaseHTTPRequestHandler, fields: dict[str, str]) -> None:
        with self._lock:
            self.requests.append((handler.command, handler.path, fields))
            failure = self.failures.pop(0) if self.failures else None
        self.gate.wait(30)
        status, body = failure or (200, self._issue())
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _issue(self) -> dict[str, Any]:
        with self._lock:
            token = f"ya29.fake-{len(self.issued) + 1}"
            self.issued.append(token)
        return {"access_token": token, "expires_in": self.lifetime, "token_type": "Bearer"}

    def __enter__(self) -> Self:
        serve = self._http.serve_forever
        threading.Thread(target=serve, args=(0.02,), name="fake-tokens", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.set()
        self._http.shutdown()
        self._http.server_close()


def authorized_user_file(folder: Path, token_uri: str, **more: str) -> Path:
    """Write a credentials file like `gcloud auth application-default login` does, and return it."""
    path = folder / "authorized_user.json"
    info = {
        "type": "authorized_user",
        "client_id": "made-up.apps.googleusercontent.com",
        "client_secret": "made-up-secret",
        "refresh_token": "1//made-up-refresh-token",
        "token_uri": token_uri,
    }
    path.write_text(json.dumps({**info, **more}))
    return path


def service_account_file(folder: Path, token_uri: str, **more: str) -> Path:
    """Write the key file of a service account, with a newly generated key, and return it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "service_account.json"
    info = {
        "type": "service_account",
        "project_id": "made-up",
        "private_key_id": "made-up-key",
        "private_key": pem.decode(),
        "client_email": "runner@made-up.iam.gserviceaccount.com",
        "token_uri": token_uri,
    }
    path.write_text(json.dumps({**info, **more}))
    return path


class FakeVertexProject(FakeGoogle):
    """The Vertex API with machine credentials. Its paths contain a project and a location, and each
    request needs a bearer token that `tokens` issued."""

    project = "made-up"
    location = "europe-west4"

    def __init__(self, script: Script, folder: Path) -> None:
        """Start to listen, and write the credentials file into `folder`."""
        super().__init__(script)
        self.tokens = FakeTokenServer()
        self.file = authorized_user_file(folder, self.tokens.url)

    @property
    def env(self) -> dict[str, str]:
        return {
            "GOOGLE_GENAI_USE_VERTEXAI": "true",
            "GOOGLE_CLOUD_PROJECT": self.project,
            "GOOGLE_CLOUD_LOCATION": self.location,
            "GOOGLE_APPLICATION_CREDENTIALS": str(self.file),
            "GOOGLE_VERTEX_BASE_URL": self.url,
        }

    def __enter__(self) -> Self:
        self.tokens.__enter__()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.tokens.__exit__(kind, error, trace)

    def _pick(self, request: Request) -> Answer:
        # Requests of this sign-in have no API key, so `request.key` is the bearer token.
        if not self.tokens.is_live(request.key) or "x-goog-api-key" in request.headers:
            message = "Request had invalid authentication credentials. Expected OAuth 2 access token."
            return Reply(status=401, error=message, times=None)
        if (
            f"/projects/{self.project}/locations/{self.location}/publishers/google/models/"
            not in request.path
        ):
            return Reply(status=404, error=f"There is nothing at {request.path}", times=None)
        return super()._pick(request)


class FakeCodeAssist(FakeGoogle):
    """The Code Assist API for account logins. The model's name is in the request body, and the
    answer is wrapped in another object."""

    @property
    def env(self) -> dict[str, str]:
        return {
            "GOOGLE_GENAI_USE_GCA": "true",
            "GOOGLE_CLOUD_ACCESS_TOKEN": LOGIN,
            "GOOGLE_CLOUD_PROJECT": "made-up",
            "CODE_ASSIST_ENDPOINT": self.url,
            "HTTPS_PROXY": self.proxy.url,
            "NO_PROXY": "127.0.0.1",
        }

    def __enter__(self) -> Self:
        # Requests to all other servers go to a proxy that refuses them, so nothing leaves this
        # machine.
        self.proxy = FakeProxy(status=403)
        self.proxy.__enter__()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.proxy.__exit__(kind, error, trace)

    def _pick(self, request: Request) -> Answer:
        if request.authorization != f"Bearer {LOGIN}":
            return Reply(status=401, error="Request had invalid authentication credentials.", times=None)
        # The script has the model's replies only. Requests about the account get default answers.
        return self._utility_replies.pick(request) if request.method == "other" else super()._pick(request)
