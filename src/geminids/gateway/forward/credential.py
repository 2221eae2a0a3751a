"""How the gateway signs in to the API: with a key, with machine credentials, or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from geminids.errors import GeminidsError
from geminids.gateway.forward.network_settings import NetworkSettings

if TYPE_CHECKING:
    from geminids.gateway.forward.access_token import AccessToken, TokenSource

__all__ = ["ApiKey", "CliLogin", "Credential", "VertexCredentials"]

_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*")
_LOCATION = re.compile(r"[a-z][a-z0-9-]*")
# Set on Google's machines: App Engine and Cloud Run set their service, a test or an emulator sets
# its own host.
_MACHINE_VARIABLES = ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "K_SERVICE", "CLOUD_RUN_JOB", "GAE_SERVICE")
_PRODUCT_NAME = Path("/sys/class/dmi/id/product_name")


class ApiKey:
    """A key of the Gemini API or of Vertex AI. It is sent where the CLI sent its token.

    Raises `GeminidsError` for a key that cannot be sent in a header.
    """

    def __init__(self, key: str) -> None:
        # Checked here, because the error of an HTTP library would show the key.
        key = key.strip()
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise GeminidsError(
                "the API key is empty or has invalid characters",
                hint="Check where it comes from: a key is one word of letters, digits, - and _.",
            )
        self.key = key

    def __repr__(self) -> str:
        return "ApiKey(***)"


class CliLogin:
    """The CLI signs in itself (account logins): its `Authorization` is forwarded unchanged."""

    def __repr__(self) -> str:
        return "CliLogin()"


class VertexCredentials:
    """Machine credentials for Vertex AI (Application Default Credentials), with a project and a
    location.

    The access token comes from the file that GOOGLE_APPLICATION_CREDENTIALS names, else from
    gcloud's file (CLOUDSDK_CONFIG, or below HOME), else from the metadata server of a Google
    machine (GCE_METADATA_HOST). All of these are looked up in `environ`, and every request for a
    token uses `network` (proxy, certificates).

    google-auth itself reads the environment of this process, not `environ`, for two kinds of files:
    `external_account` with an AWS source or an executable (AWS_*, GOOGLE_EXTERNAL_ACCOUNT_*).
    """

    def __init__(
        self, project: str, location: str, environ: Mapping[str, str], network: NetworkSettings
    ) -> None:
        """Raises `GeminidsError` if project or location cannot be part of a URL."""
        self.project = _checked(project, _PROJECT, "project", "GOOGLE_CLOUD_PROJECT")
        self.location = _checked(location, _LOCATION, "location", "GOOGLE_CLOUD_LOCATION")
        self._environ = environ
        self._network = network
        self._source: TokenSource | None = None

    def __repr__(self) -> str:
        return f"VertexCredentials({self.project!r}, {self.location!r})"

    def check_available(self) -> None:
        """Raise `GeminidsError` if google-auth is not installed or no credentials are found. Sends
        no request."""
        if not _has_google_auth():
            raise GeminidsError(
                "Vertex AI with machine credentials needs google-auth, which is not installed",
                hint="pip install 'geminids[vertex]'",
            )
        # Import late: most runs sign in with a key.
        from geminids.gateway.forward.credentials_file import (
            LOGIN_HINT,
            credentials_file,
            read_credentials_file,
        )

        path = credentials_file(self._environ)
        if path is not None:
            read_credentials_file(path)
        elif not _may_have_metadata(self._environ):
            raise GeminidsError("no Google Cloud credentials were found for Vertex AI", hint=LOGIN_HINT)

    async def token(self) -> AccessToken:
        """A token that is valid for the next request; raises `SignInError`."""
        if self._source is None:
            # Import late: this imports asyncio's client, and google-auth with the first token.
            from geminids.gateway.forward.access_token import token_source

            self._source = token_source(self._environ, self._network)
        return await self._source.token()

    def reject(self, token: AccessToken) -> None:
        """The API refused this token: the next call of `token` obtains a new one."""
        if self._source is not None:
            self._source.reject(token)


Credential = ApiKey | VertexCredentials | CliLogin


def _checked(value: str, pattern: re.Pattern[str], noun: str, variable: str) -> str:
    value = value.strip()
    if not pattern.fullmatch(value):
        raise GeminidsError(f"{value!r} is not a valid Google Cloud {noun}", hint=f"Set {variable}.")
    return value


def _has_google_auth() -> bool:
    from importlib.util import find_spec

    try:
        return find_spec("google.auth") is not None
    except (ImportError, ValueError):
        return False


def _may_have_metadata(environ: Mapping[str, str]) -> bool:
    """Whether this machine may have a metadata server. Sends no request."""
    if environ.get("NO_GCE_CHECK", "").lower() == "true":
        return False
    if any(environ.get(name) for name in _MACHINE_VARIABLES):
        return True
    try:
        return _PRODUCT_NAME.read_text().strip().startswith("Google")
    except OSError:
        return False
