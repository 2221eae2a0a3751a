"""Decide whether a request may use the gateway, by its host, token and path."""

from __future__ import annotations

import re

from geminids.gateway.lease import Lease, Leases
from geminids.gateway.request import Api, Request

__all__ = ["Unauthorized", "authorize"]

# The paths that the CLI uses, by the form of the API.
_PATHS: dict[Api, re.Pattern[str]] = {
    # Models, their methods, files and cached contents.
    "gemini": re.compile(
        r"(?:/v1(?:alpha|beta\d?)?/(?:models|tunedModels|files|cachedContents)|/upload/v1(?:alpha|beta\d?)?/files)"
        r"(?:/\w[\w.\-]*)?(?::\w+)?"
    ),
    # With a key, the CLI's path has no project. `-m PUBLISHER/MODEL` sets another publisher than
    # google.
    "vertex": re.compile(r"/v1(?:alpha|beta\d?)?/publishers/\w[\w.\-]*/models/\w[\w.\-@]*:\w+"),
    # Methods, and the operation that `onboardUser` starts (server.ts).
    "code_assist": re.compile(r"/v\d\w*(?::\w+|/(?:\w[\w.\-]*/)*operations/\w[\w.\-]*)"),
}
_NAMES: dict[Api, str] = {"gemini": "Gemini", "vertex": "Vertex AI", "code_assist": "Code Assist"}
_QUERY = re.compile(r"[^#\s]*")
# Google reads headers from the query (`$httpHeaders`), which could override the method: see
# `forward`.
_HEADERS_IN_QUERY = re.compile(r"(?:\$|%24)http", re.IGNORECASE)
# Browsers add one of these to every request, and pages cannot remove them. (Node sends only
# `sec-fetch-mode`.)
_BROWSER_HEADERS = ("origin", "sec-fetch-site")


class Unauthorized(Exception):
    """The request is refused with this status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def authorize(request: Request, leases: Leases, port: int) -> Lease:
    """Return the lease of the request's token. Raises `Unauthorized`.

    The token of a Code Assist request is in its path: its `Authorization` is the CLI's own login.
    The Host header is checked because otherwise a web page whose name resolves to 127.0.0.1 could
    reach the gateway.
    """
    host = request.headers.get("host", "")
    if host not in (f"127.0.0.1:{port}", f"localhost:{port}"):
        raise Unauthorized(403, "this gateway serves only requests to its own host")
    if any(name in request.headers for name in _BROWSER_HEADERS):
        raise Unauthorized(403, "this gateway does not serve browsers")
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
