"""Get access tokens for Vertex AI, and renew them before they expire. The tokens come from the
metadata server, or from a credentials file with the help of the library google-auth.

This module is imported only when the first request needs a token. A worker thread imports
google-auth, because that import is slow.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import aclosing
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import msgspec

from geminids.at_fork import importing
from geminids.errors import GeminidsError
from geminids.gateway.forward.client import Client
from geminids.gateway.forward.credentials_file import credentials_file, read_credentials_file
from geminids.gateway.forward.network_settings import NetworkSettings, read_address
from geminids.gateway.upstream import SignInError, UpstreamFault
from geminids.log import get_logger

__all__ = ["AccessToken", "TokenSource", "token_source"]

_log = get_logger("gateway")

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TOKEN_URI = "https://oauth2.googleapis.com/token"
_METADATA_HOST = "metadata.google.internal"
_METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
# Renew the token in the background when it is valid for fewer seconds than this. The metadata
# server issues a new token only in the last 4 to 5 minutes, so an earlier renewal would return the
# same token (google-auth also uses 3:45).
_RENEW_SECONDS = 225
# If the token is valid for fewer seconds than this, a request waits for the new token.
_MIN_SECONDS = 30
# After a renewal, no renewal in the background starts for this number of seconds. So a failed
# renewal is not repeated immediately.
_PAUSE_SECONDS = 15
_LIFETIME_SECONDS = 3600
_TIMEOUT_SECONDS = 30
_MAX_BODY = 1024 * 1024
_MAX_SOURCES = 32
_CHECK_SIGN_IN = "Test the sign-in with `geminids doctor --live`."
_ACCOUNT_IN_URL = re.compile(r"/serviceAccounts/([^/:]+):generateAccessToken$")


class AccessToken(msgspec.Struct, frozen=True):
    """An access token for Vertex AI (a bearer token). `expires_at` is the time when it expires.
    `quota_project` is the Google Cloud project whose quota the requests use; None means that the
    requests name no such project.
    """

    value: str
    expires_at: float
    """The time at which the token expires, in Unix seconds."""
    quota_project: str | None = None

    def __repr__(self) -> str:
        return f"AccessToken(***, expires_at={self.expires_at})"


class TokenSource:
    """Provides an access token, and renews it before it expires. The function `fetch` gets a new
    token; it is called in a worker thread. All requests that wait for a token share one renewal.
    Thread-safe.
    """

    def __init__(self, fetch: Callable[[], AccessToken]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._token: AccessToken | None = None
        self._pending: Future[AccessToken] | None = None
        self._not_before = 0.0

    async def token(self) -> AccessToken:
        """Return a valid access token. Wait only if there is no valid token now. Raises
        `SignInError` if no token can be obtained.
        """
        with self._lock:
            now = time.time()
            left = 0.0 if self._token is None else self._token.expires_at - now
            if self._token is not None and left > _MIN_SECONDS:
                if left < _RENEW_SECONDS and self._pending is None and now >= self._not_before:
                    self._start()
                return self._token
            pending = self._pending or self._start()
        return await asyncio.wrap_future(pending)

    def reject(self, token: AccessToken) -> None:
        """Discard this access token, so that the next request gets a new one. If the token was
        already replaced, do nothing.
        """
        with self._lock:
            if self._token is not None and self._token.value == token.value:
                self._token = None

    def _start(self) -> Future[AccessToken]:
        pending: Future[AccessToken] = Future()
        # A cancelled request must not cancel the renewal, because other requests wait for it.
        pending.set_running_or_notify_cancel()
        try:
            threading.Thread(target=self._renew, args=(pending,), name="geminids-token", daemon=True).start()
        except RuntimeError as error:
            # The system allows no more threads (ulimit -u). The next request tries to start one
            # again.
            hint = "Raise the limit of processes (ulimit -u), or run fewer agents at once."
            pending.set_exception(_failed(503, f"no thread could be started to fetch a token: {error}", hint))
        else:
            self._pending = pending
        return pending

    def _renew(self, pending: Future[AccessToken]) -> None:
        token, error = None, None
        try:
            token = self._fetch()
        except SignInError as sign_in_error:
            error = sign_in_error
        except BaseException as problem:  # even SystemExit: requests wait for `pending`
            _log.error("an access token could not be obtained", error=problem)
            cause = f"the token could not be fetched, because of an unexpected {type(problem).__name__}"
            error = _failed(401, cause, _CHECK_SIGN_IN)
        with self._lock:
            self._pending = None
            self._token = token or self._token
            self._not_before = time.time() + _PAUSE_SECONDS
        if token is not None:
            pending.set_result(token)
        else:
            pending.set_exception(error or _failed(401, "the token could not be fetched", _CHECK_SIGN_IN))


_Key = tuple[object, ...]
_sources: dict[_Key, TokenSource] = {}
_sources_lock = threading.Lock()


def token_source(environ: Mapping[str, str], network: NetworkSettings) -> TokenSource:
    """Return the source of access tokens for the credentials in this environment. All runs with the
    same credentials share one source and its token. If the path in
    GOOGLE_APPLICATION_CREDENTIALS is not a file, `token` of the returned source always raises
    `SignInError`.
    """
    try:
        path = credentials_file(environ)
        stat = None if path is None else path.stat()
    except (OSError, GeminidsError) as error:
        return TokenSource(_always_failing(str(error)))
    quota_project = environ.get("GOOGLE_CLOUD_QUOTA_PROJECT") or None
    host = environ.get("GCE_METADATA_HOST") or environ.get("GCE_METADATA_ROOT") or _METADATA_HOST
    key: _Key = (os.getpid(), path, stat and (stat.st_mtime_ns, stat.st_size), quota_project, host, network)
    with _sources_lock:
        source = _sources.get(key)
        if source is None:
            fetch = _FromMetadata(host, network) if path is None else _FromFile(path, quota_project, network)
            source = _sources[key] = TokenSource(fetch)
            while len(_sources) > _MAX_SOURCES:
                del _sources[next(iter(_sources))]
        return source


def _always_failing(message: str) -> Callable[[], AccessToken]:
    def fetch() -> AccessToken:
        raise SignInError(401, f"No access token for Vertex AI: {message}")

    return fetch


class _FromMetadata:
    """Gets access tokens for the service account of this machine. They come from the metadata
    server, which gives tokens to programs on a Google machine.

    This class does not use google-auth, for two reasons: google-auth needs the library `requests`.
    And during its import, google-auth reads the server's address from the environment of this
    process.
    """

    def __init__(self, host: str, network: NetworkSettings) -> None:
        self._url = f"http://{host}{_METADATA_PATH}?scopes={_SCOPE}"
        # Only the machine itself can reach its metadata server; a proxy cannot.
        self._network = msgspec.structs.replace(network, proxy=None)

    def __call__(self) -> AccessToken:
        hint = (
            "Check that a service account is attached to this machine, or set GOOGLE_APPLICATION_CREDENTIALS."
        )
        try:
            status, _, body = _send(self._url, "GET", {"metadata-flavor": "Google"}, b"", self._network)
        except UpstreamFault as fault:
            raise _failed(503, f"the request to the metadata server failed: {fault.message}", hint) from None
        try:
            answer = msgspec.json.decode(body) if status == 200 else {}
            return AccessToken(answer["access_token"], time.time() + float(answer["expires_in"]))
        except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError, ValueError):
            is_transient = status >= 500 or status == 429
            cause = f"the metadata server sent no valid token (HTTP {status})"
            raise _failed(503 if is_transient else 401, cause, hint) from None


class _FromFile:
    """Gets access tokens for the account in a credentials file (`path`), with the library
    google-auth.
    """

    def __init__(self, path: Path, quota_project: str | None, network: NetworkSettings) -> None:
        self._path = path
        self._quota_project = quota_project
        self._network = network
        self._credentials: Any = None

    def __call__(self) -> AccessToken:
        try:
            with importing():
                from google.auth import exceptions
        except ImportError:
            raise _failed(
                401, "google-auth is not installed", "Run `pip install 'geminids[vertex]'`."
            ) from None
        hint = f"Check the credentials in {self._path}."
        try:
            if self._credentials is None:
                info = read_credentials_file(self._path)
                with importing():
                    self._credentials = _credentials_of(info)
            if _is_user(self._credentials):
                hint = "Run `gcloud auth application-default login` and try again."
            self._credentials.refresh(_transport(self._network))
        except GeminidsError as error:
            raise _failed(401, error.message, error.hint or "") from None
        except exceptions.TransportError as error:
            raise _failed(503, f"the request to the token server failed: {_first_line(error)}", "") from None
        except exceptions.GoogleAuthError as error:
            status = 503 if getattr(error, "retryable", False) else 401
            raise _failed(status, _first_line(error), hint) from None
        except (ValueError, TypeError) as error:
            cause = f"the credentials file {self._path} cannot be used: {_first_line(error)}"
            raise _failed(401, cause, hint) from None
        return self._token()

    def _token(self) -> AccessToken:
        credentials = self._credentials
        expiry = credentials.expiry  # UTC, without a time zone
        expires_at = (
            time.time() + _LIFETIME_SECONDS if expiry is None else expiry.replace(tzinfo=UTC).timestamp()
        )
        return AccessToken(
            credentials.token, expires_at, self._quota_project or credentials.quota_project_id or None
        )


def _is_user(credentials: Any) -> bool:
    return type(credentials).__module__ == "google.oauth2.credentials"


def _credentials_of(info: dict[str, Any]) -> Any:
    """Create the credentials object of google-auth from `info`, the content of a credentials file.

    The function `google.auth.load_credentials_from_dict` is not used, for two reasons: it ignores
    the field `token_uri` in a file of the type `authorized_user`, and for an external account, it
    asks Google for the project.

    Raises `GeminidsError` if credentials of this type are not supported. If the content is not
    valid, the errors of google-auth are raised unchanged.
    """
    kind = info["type"]
    if kind == "authorized_user":
        from google.oauth2.credentials import Credentials

        return Credentials(
            None,
            refresh_token=info.get("refresh_token"),
            token_uri=info.get("token_uri") or _TOKEN_URI,
            client_id=info.get("client_id"),
            client_secret=info.get("client_secret"),
            quota_project_id=info.get("quota_project_id"),
        )
    if kind == "service_account":
        from google.oauth2 import service_account

        info = {"token_uri": _TOKEN_URI, **info}
        return service_account.Credentials.from_service_account_info(info, scopes=[_SCOPE])
    if kind == "impersonated_service_account":
        return _impersonated(info)
    if kind == "external_account_authorized_user":
        from google.auth import external_account_authorized_user

        return external_account_authorized_user.Credentials.from_info(info)
    if kind == "external_account":
        return _external_account(info)
    raise GeminidsError(
        f"credentials of type {kind!r} cannot be used for Vertex AI",
        hint="Use a service account, or `gcloud auth application-default login`.",
    )


def _impersonated(info: dict[str, Any]) -> Any:
    """Create credentials with which a source account acts as a service account (impersonation).
    `info` is the content of a file that the command `gcloud auth application-default login
    --impersonate-service-account=ACCOUNT` wrote. Raises `GeminidsError` if the service account or
    the source account is missing in the file.
    """
    from google.auth import impersonated_credentials

    url, source = info.get("service_account_impersonation_url"), info.get("source_credentials")
    account = _ACCOUNT_IN_URL.search(url) if isinstance(url, str) else None
    if account is None or not isinstance(source, dict) or not isinstance(source.get("type"), str):
        raise GeminidsError(
            "the credentials are incomplete: they need a service account to impersonate, and source credentials",
            hint="Create the credentials again: "
            "`gcloud auth application-default login --impersonate-service-account=ACCOUNT`.",
        )
    return impersonated_credentials.Credentials(
        source_credentials=_credentials_of(source),
        target_principal=account[1],
        target_scopes=[_SCOPE],
        delegates=info.get("delegates"),
        quota_project_id=info.get("quota_project_id"),
    )


def _external_account(info: dict[str, Any]) -> Any:
    from google.auth import aws, identity_pool, pluggable

    source = info.get("credential_source")
    if info.get("subject_token_type") == "urn:ietf:params:aws:token-type:aws4_request":
        return aws.Credentials.from_info(info, scopes=[_SCOPE])
    if isinstance(source, dict) and "executable" in source:
        return pluggable.Credentials.from_info(info, scopes=[_SCOPE])
    return identity_pool.Credentials.from_info(info, scopes=[_SCOPE])


def _transport(network: NetworkSettings) -> Any:
    """Return the function with which google-auth sends its requests. The function uses geminids'
    own HTTP client, with the proxy and the certificates of the run.
    """
    from google.auth import exceptions

    def request(
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> _TransportResponse:
        sent = body.encode() if isinstance(body, str) else body or b""
        try:
            return _TransportResponse(*_send(url, method, dict(headers or {}), sent, network))
        except UpstreamFault as fault:
            raise exceptions.TransportError(fault.message) from None

    return request


class _TransportResponse:
    """The response object that google-auth expects from a transport
    (`google.auth.transport.Response`).
    """

    def __init__(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


def _send(
    url: str, method: str, headers: Mapping[str, str], body: bytes, network: NetworkSettings
) -> tuple[int, dict[str, str], bytes]:
    """Send one HTTP request, and return the status, the headers and the body of the answer. Raises
    `UpstreamFault` if there is no answer.

    Call this only in a thread that has no event loop.
    """
    return asyncio.run(_exchange(url, method, headers, body, network))


async def _exchange(
    url: str, method: str, headers: Mapping[str, str], body: bytes, network: NetworkSettings
) -> tuple[int, dict[str, str], bytes]:
    address = read_address(url)
    if address is None:
        raise UpstreamFault("connect", f"{url} is not an http or https URL")
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    ours = {"host": address.host_header, "accept-encoding": "identity", "connection": "close"}
    if body or method != "GET":
        ours["content-length"] = str(len(body))
    sent = {name.lower(): value for name, value in headers.items()} | ours
    head = h11.Request(method=method, target=target, headers=list(sent.items()))
    status, response_headers, data = 0, dict[str, str](), bytearray()
    try:
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),
            aclosing(Client().exchange(address, network, head, body)) as answer,
        ):
            async for part in answer:
                if isinstance(part, h11.Response):
                    status = part.status_code
                    response_headers = {
                        name.decode("latin-1"): value.decode("latin-1") for name, value in part.headers
                    }
                elif len(data) < _MAX_BODY:
                    data += part
    except TimeoutError:
        raise UpstreamFault(
            "connect", f"{address.host_and_port} did not answer within {_TIMEOUT_SECONDS} s"
        ) from None
    return status, response_headers, bytes(data)


def _failed(status: int, cause: str, hint: str) -> SignInError:
    return SignInError(status, f"No access token for Vertex AI: {cause.rstrip('.')}. {hint}".rstrip())


def _first_line(error: Exception) -> str:
    # Keep only the first line, because google-auth adds the server's whole answer to its message.
    message = str(error.args[0]) if error.args else type(error).__name__
    return message.partition("\n")[0][:300]
