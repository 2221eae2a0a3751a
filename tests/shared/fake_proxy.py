"""A fake HTTP proxy on loopback that supports CONNECT only, with plain sockets and threads.

with FakeProxy(user="u:p") as proxy:
    proxy.url       # http://localhost:PORT, or https://localhost:PORT with `tls`
    proxy.asked     # the targets of all CONNECT requests, each `host:port`
    proxy.leads_to  # {"api.test:443": ("127.0.0.1", 8443)}: addresses for names that have no DNS entry
"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["FakeProxy"]


class FakeProxy:
    """Connects clients to the requested target. With `status` it only answers with that HTTP
    status.

    `user` is the required `name:password`; `tls` is a file with a certificate and its key."""

    def __init__(
        self, *, user: str | None = None, status: int | None = None, tls: Path | None = None
    ) -> None:
        self.asked: list[str] = []
        self.leads_to: dict[str, tuple[str, int]] = {}
        self._user = user
        self._status = status
        self._tls: ssl.SSLContext | None = None
        if tls is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(tls)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="fake-proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opened in (self._listener, *self._open):
            try:
                opened.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            opened.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.append(client)
        try:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
                self._open.append(client)
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536)
            target = head.split()[1].decode()
            self.asked.append(target)
            status = self._status or (407 if self._lacks_credentials(head) else 200)
            client.sendall(b"HTTP/1.1 %d Whatever\r\n\r\n" % status)
            if status == 200:
                host, _, port = target.rpartition(":")
                server = socket.create_connection(self.leads_to.get(target, (host, int(port))))
                self._open.append(server)
                threading.Thread(target=_copy, args=(server, client), daemon=True).start()
                _copy(client, server)
            client.close()
        except OSError:
            client.close()

    def _lacks_credentials(self, head: bytes) -> bool:
        return self._user is not None and base64.b64encode(self._user.encode()) not in head


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
