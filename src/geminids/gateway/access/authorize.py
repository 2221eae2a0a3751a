"""Decide whether a request may use the gateway. The decision depends on the token, the path and the
headers of the request.
"""

from __future__ import annotations

import re

from geminids.gateway.lease import Lease, Leases
from geminids.gateway.request import Api, Request

__all__ = ["Unauthorized", "authorize"]

# The URL paths that the CLI uses for each API.
_PATHS: dict[Api, re.Pattern[str]] = {
    # Models and their methods, files, cached contents.
    "gemini": re.compile(
        r"(?:/v1(?:alpha|beta\d?)?/(?:models|tunedModels|files|cachedContents)|/upload/v1(?:alpha|beta\d?)?/files)"
        r"(?:/\w[\w.\-]*)?(?::\w+)?"
    ),
    # If the CLI uses a key, the path contains no project. With `-m PUBLISHER/MODEL`, the path
    # contains a publisher other than `google`.
    "vertex": re.compile(r"/v1(?:alpha|beta\d?)?/publishers/\w[\w.\-]*/models/\w[\w.\-@]*:\w+"),
    # The methods of Code Assist, and the operation that `onboardUser` starts (server.ts of Gemini
    # CLI).
    "code_assist": re.compile(r"/v\d\w*(?::\w+|/(?:\w[\w.\-]*/)*operations/\w[\w.\-]*)"),
}
_NAMES: dict[Api, str] = {"gemini": "Gemini", "vertex": "Vertex AI", "code_assist": "Code Assist"}
_QUERY = re.compile(r"[^#\s]*")
# Google also reads headers from the query (`$httpHeaders`). Such headers could override the HTTP
# method (see `_SET_BY_GATEWAY` in `forward`).
_HEADERS_IN_QUERY = re.compile(r"(?:\$|%24)http", re.IGNORECASE)
# Browsers add one of these headers to every request, and web pages cannot remove them. (Node sends
# only `sec-fetch-mode`.)
_BROWSER_HEADERS = ("origin", "sec-fetch-site")


class Unauthorized(Exception):
    """Raised if a request may not use the gateway. The gateway answers such a request with the HTTP
    status `status` and the text `message`.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def authorize(request: Request, leases: Leases, port: int) -> Lease:
    """Return the lease (a run's right to use the gateway) that belongs to the token of this
    request. Raises `Unauthorized` if the request is not allowed. `port` is the gateway's port.

    The `Host` header must name the gateway's own address. Otherwise a web page could reach the
    gateway through a name that resolves to 127.0.0.1. A Code Assist request has its token in the
    URL path, because its `Authorization` header contains the CLI's own login.
    """
    host = request.headers.get("host", "")
    if host not in (f"127.0.0.1:{port}", f"localhost:{port}"):
        raise Unauthorized(403, "the Host header is not the address of this gateway")
    if any(name in request.headers for name in _BROWSER_HEADERS):
        raise Unauthorized(403, "this gateway does not accept requests from browsers")
    lease = leases.find(request.key)
    if lease is None:
        raise Unauthorized(403, "the token is missing or not valid")
    if request.verb not in ("GET", "POST") or request.api != lease.api or not _is_path(request):
        raise Unauthorized(404, f"this is not a path of the {_NAMES[lease.api]} API")
    return lease


def _is_path(request: Request) -> bool:
    path, _, query = request.path.partition("?")
    return (
        _PATHS[request.api].fullmatch(path) is not None
        and _QUERY.fullmatch(query) is not None
        and not _HEADERS_IN_QUERY.search(request.path)
    )
