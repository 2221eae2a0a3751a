"""Forward requests of the CLI to the real API. The gateway signs in to the API with its own
credential, so that the CLI does not need a real credential.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from geminids.gateway.forward.credential import ApiKey, CliLogin, Credential, VertexCredentials
from geminids.gateway.forward.network_settings import NetworkSettings, read_base_url
from geminids.gateway.request import NESTED_HEADER, TOKEN_PREFIX, Api, Request
from geminids.gateway.upstream import Body, Head, Part, SignInError, UpstreamFault

if TYPE_CHECKING:
    import h11

    from geminids.gateway.forward.access_token import AccessToken

__all__ = ["CODE_ASSIST_URL", "GEMINI_URL", "NOT_SIGNED_IN", "VERTEX_URL", "Forwarding", "default_base_url"]

GEMINI_URL = "https://generativelanguage.googleapis.com"
VERTEX_URL = "https://aiplatform.googleapis.com"
CODE_ASSIST_URL = "https://cloudcode-pa.googleapis.com"
NOT_SIGNED_IN = "not signed in"
"""The value of `Head.kind` if the sign-in failed. Such a request was not sent to the API."""

# The base URLs of the Vertex AI locations that do not use `LOCATION-aiplatform.googleapis.com`, as
# in the CLI (contentGenerator.ts).
_VERTEX_REGIONS = {
    "global": VERTEX_URL,
    "us": "https://aiplatform.us.rep.googleapis.com",
    "eu": "https://aiplatform.eu.rep.googleapis.com",
}
_BASE_URL_VARIABLES: dict[Api, str] = {
    "gemini": "GOOGLE_GEMINI_BASE_URL",
    "vertex": "GOOGLE_VERTEX_BASE_URL",
    "code_assist": "CODE_ASSIST_ENDPOINT",
}
_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
# The gateway sets or removes these headers. One of them is `accept-encoding`: the answer must not
# be compressed, because the gateway reads the token counts in it. `x-http-method-override` would
# turn a POST into another method.
_SET_BY_GATEWAY = frozenset(
    ("host", "content-length", "accept-encoding", "expect", "x-http-method-override", NESTED_HEADER)
)
_SHORTEST_MASKED = 6
_KEY_IN_QUERY = re.compile(r"(?<=[?&])key=[^&]*&?")


def default_base_url(credential: Credential, api: Api = "gemini") -> str:
    """Return the base URL of Google's own API that is used with this credential.

    `api` is needed for keys, because an `ApiKey` can be a key for the Gemini API or for Vertex AI.

    >>> default_base_url(ApiKey("k")), default_base_url(ApiKey("k"), "vertex"), default_base_url(CliLogin())
    ('https://generativelanguage.googleapis.com', 'https://aiplatform.googleapis.com', 'https://cloudcode-pa.googleapis.com')
    """
    if isinstance(credential, VertexCredentials):
        location = credential.location
        return _VERTEX_REGIONS.get(location, f"https://{location}-aiplatform.googleapis.com")
    if isinstance(credential, CliLogin):
        return CODE_ASSIST_URL
    return VERTEX_URL if api == "vertex" else GEMINI_URL


class Forwarding:
    """Forwards requests to one API, and signs in with one credential. All `Forwarding` objects of a
    process share their connections to the API.
    """

    wants_body = False
    """False, because the body of a request is not needed after the answer has begun. So the gateway
    may free the memory of the body (see `metering`)."""

    def __init__(self, base_url: str, credential: Credential, network: NetworkSettings) -> None:
        """Prepare to forward requests to `base_url`. `network` contains the proxy and the
        certificates. Raises `GeminidsError` if the base URL is not valid.
        """
        self._address, self._prefix = read_base_url(base_url)
        self._credential = credential
        self._key = credential.key if isinstance(credential, ApiKey) else None
        # Do not mask a very short key, which only a test server has: it would match ordinary text.
        self._masked_key = self._key if self._key is not None and len(self._key) >= _SHORTEST_MASKED else None
        self._network = network
        # If the key or the path of the base URL contains a run's token, the API is the gateway of
        # an outer run.
        self._is_nested = (self._key or "").startswith(TOKEN_PREFIX) or f"/{TOKEN_PREFIX}" in self._prefix

    def __repr__(self) -> str:
        return f"Forwarding({self._address.host_and_port})"

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        # Imported late, because this module is loaded before the CLI is spawned. This method runs
        # in the gateway's thread.
        from geminids.gateway.forward.client import client

        try:
            token = await self._token(request)
            exchange = client().exchange(
                self._address, self._network, self._head(request, token), request.raw
            )
            response = await anext(exchange)
            assert not isinstance(response, bytes)
            if token is not None and response.status_code == 401:
                # The token was revoked or has expired early: try once more with a new token.
                await exchange.aclose()
                token = await self._token(request, instead_of=token)
                exchange = client().exchange(
                    self._address, self._network, self._head(request, token), request.raw
                )
                response = await anext(exchange)
                assert not isinstance(response, bytes)
        except SignInError as error:
            for part in _error(error.status, error.message, NOT_SIGNED_IN):
                yield part
            return
        secret = self._masked_key if token is None else token.value
        masker = _SecretMasker(secret) if secret is not None and response.status_code >= 400 else None
        try:
            async with aclosing(exchange):
                if (target := _redirect_target(response)) is not None:
                    for part in _refuse_redirect(target, request.api):
                        yield part
                    return
                yield Head(response.status_code, _headers_of(response, secret), "passed on")
                async for piece in exchange:
                    assert isinstance(piece, bytes)
                    yield Body(piece if masker is None else masker.feed(piece))
        except UpstreamFault:
            if masker is not None:
                yield Body(masker.rest)
            raise
        if masker is not None:
            yield Body(masker.rest)

    async def _token(self, request: Request, instead_of: AccessToken | None = None) -> AccessToken | None:
        # If the user has set their own `Authorization` header (GEMINI_CLI_CUSTOM_HEADERS), this
        # header is used instead of a token, as in the CLI.
        if not isinstance(self._credential, VertexCredentials) or request.authorization is not None:
            return None
        if instead_of is not None:
            self._credential.reject(instead_of)
        return await self._credential.token()

    def _head(self, request: Request, token: AccessToken | None) -> h11.Request:
        import h11  # imported late: this module is loaded before the CLI is spawned

        headers = [("Host", self._address.host_header)]
        named = request.headers.get("connection", "").lower().replace(" ", "").split(",")
        for name, value in request.headers.items():
            if name not in _HOP_BY_HOP and name not in _SET_BY_GATEWAY and name not in named:
                headers += self._signed(name, value, request)
        path = _KEY_IN_QUERY.sub("", request.path).rstrip("?&")
        has_bearer_key = "authorization" in request.headers and request.authorization is None
        if (
            self._key is not None
            and path != request.path
            and not has_bearer_key
            and "x-goog-api-key" not in request.headers
        ):
            # Send the key in a header instead of the URL, because servers copy URLs into upload
            # links and messages.
            headers.append(("x-goog-api-key", self._key))
        if token is not None:
            headers.append(("authorization", f"Bearer {token.value}"))
            if token.quota_project and "x-goog-user-project" not in request.headers:
                headers.append(("x-goog-user-project", token.quota_project))
        if self._is_nested:
            headers.append((NESTED_HEADER, "1"))
        headers.append(("accept-encoding", "identity"))
        if request.raw or request.verb == "POST":
            headers.append(("content-length", str(len(request.raw))))
        return h11.Request(method=request.verb, target=self._prefix + self._path(path), headers=headers)

    def _path(self, path: str) -> str:
        """Return the URL path to send to the API. With Vertex credentials, the project and the
        location are inserted into the path. The CLI leaves them out, because it signs in to
        the gateway with a key.
        """
        if not isinstance(self._credential, VertexCredentials):
            return path
        version, _, rest = path.removeprefix("/").partition("/")
        return f"/{version}/projects/{self._credential.project}/locations/{self._credential.location}/{rest}"

    def _signed(self, name: str, value: str, request: Request) -> list[tuple[str, str]]:
        """Convert a header of the CLI's request to the header for the request to the API. Return a
        list with this header, or an empty list if the header must not be sent.

        If the header is a key header that contains the run's token, the real key replaces the
        token. If there is no real key, the header is not sent. Any other header that contains the
        token is not sent either.
        """
        if name == "x-goog-api-key":
            return [] if self._key is None else [(name, self._key)]
        if name == "authorization":
            if request.authorization is not None:
                return [(name, request.authorization)]
            return [] if self._key is None else [(name, f"Bearer {self._key}")]
        return [] if request.key and request.key in value else [(name, value)]


class _SecretMasker:
    """Masks a secret in the body of an error answer. This is needed because some of Google's errors
    contain the key (`Consumer 'api_key:…' has been suspended`).
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self.rest = b""
        """The bytes that `feed` has not returned yet, because they may be the beginning of the
        secret."""

    def feed(self, data: bytes) -> bytes:
        data = (self.rest + data).replace(self._secret, b"*" * len(self._secret))
        safe = max(0, len(data) - len(self._secret) + 1)
        self.rest = data[safe:]
        return data[:safe]


def _headers_of(response: h11.Response, key: str | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if key is not None:
            value = value.replace(key, "***")
        if name not in _HOP_BY_HOP:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _redirect_target(response: h11.Response) -> str | None:
    if not 300 <= response.status_code <= 399:
        return None
    return next((value.decode("latin-1") for name, value in response.headers if name == b"location"), None)


def _refuse_redirect(target: str, api: Api) -> tuple[Part, ...]:
    """Return an error answer in place of a redirect to the URL `target`. The CLI must not get the
    redirect, because the CLI would then send the conversation and the token directly to `target`.
    """
    shown = target.partition("?")[0]
    message = (
        f"The API answered with a redirect to {shown}, which geminids does not follow. "
        f"If that is the right address, set {_BASE_URL_VARIABLES[api]} to it."
    )
    return _error(400, message, "a redirect")


def _error(status: int, message: str, kind: str) -> tuple[Part, ...]:
    # Imported late (3 ms), because this module is loaded before the CLI is spawned.
    from geminids.gateway.script.encode import error_body

    body = error_body(status, message)
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return Head(status, headers, kind), Body(body)
