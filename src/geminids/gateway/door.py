"""Who may come in: a request of a program on this machine, with a live token, to a path of the Gemini API."""

from __future__ import annotations

import re

from geminids.gateway.lease import Lease, Leases
from geminids.gateway.request import Request

__all__ = ["Shut", "come_in"]

# The API's own paths that the CLI uses: models, their methods, files and cached contents.
_PATH = re.compile(
    r"(?:/v1(?:alpha|beta\d?)?/(?:models|tunedModels|files|cachedContents)|/upload/v1(?:alpha|beta\d?)?/files)"
    r"(?:/\w[\w.\-]*)?(?::\w+)?(?:\?[^#\s]*)?"
)
# Google takes headers out of the query (`$httpHeaders`), and so another method: see `passing`.
_HEADERS_IN_QUERY = re.compile(r"(?:\$|%24)http", re.IGNORECASE)
# Browsers send these by themselves, and no page can leave them out. (Node sends `sec-fetch-mode` too.)
_OF_BROWSERS = ("origin", "sec-fetch-site")


class Shut(Exception):
    """A request that gets no answer but a refusal."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def come_in(request: Request, leases: Leases, port: int) -> Lease:
    """The lease that a request comes under; raises `Shut`.

    Host is looked at, since a web page whose name leads to 127.0.0.1 could speak to us otherwise.
    """
    host = request.headers.get("host", "")
    if host not in (f"127.0.0.1:{port}", f"localhost:{port}"):
        raise Shut(403, "this gateway serves its own host alone")
    if any(name in request.headers for name in _OF_BROWSERS):
        raise Shut(403, "this gateway does not serve browsers")
    lease = leases.find(request.key)
    if lease is None:
        raise Shut(403, "no live token")
    is_path = _PATH.fullmatch(request.path) is not None and not _HEADERS_IN_QUERY.search(request.path)
    if request.verb not in ("GET", "POST") or not is_path:
        raise Shut(404, "this is no path of the Gemini API")
    return lease
