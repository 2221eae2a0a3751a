"""The ways in which the gateway signs in to the API: with an API key, or with machine credentials.
With an account login, the CLI signs in, and the gateway only forwards this login.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from geminids.errors import GeminidsError
from geminids.gateway.forward.credentials_file import (
    LOGIN_HINT,
    credentials_file,
    read_credentials_file,
)
from geminids.gateway.forward.network_settings import NetworkSettings

if TYPE_CHECKING:
    from geminids.gateway.forward.access_token import AccessToken, TokenSource

__all__ = ["ApiKey", "CliLogin", "Credential", "VertexCredentials"]

_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*")
_LOCATION = re.compile(r"[a-z][a-z0-9-]*")
# Environment variables that show that a metadata server exists (it gives tokens to programs on a
# Google machine). Cloud Run and App Engine set the name of the service; a test or an emulator sets
# the host of its own server.
_MACHINE_VARIABLES = ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "K_SERVICE", "CLOUD_RUN_JOB", "GAE_SERVICE")
_PRODUCT_NAME = Path("/sys/class/dmi/id/product_name")


class ApiKey:
    """An API key for the Gemini API or Vertex AI. The CLI gets only a token for the gateway; the
    gateway replaces this token with the key when it forwards a request.

    Raises `GeminidsError` if the key contains characters that are not allowed in an HTTP header.
    """

    def __init__(self, key: str) -> None:
        # Check the key here: the HTTP library would show the key in its error message.
        key = key.strip()
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise GeminidsError(
                "the API key is empty or has invalid characters",
                hint="Check the place that contains the key: a key is one word of letters, digits, `-` and `_`.",
            )
        self.key = key

    def __repr__(self) -> str:
        return "ApiKey(***)"


class CliLogin:
    """The CLI signs in to the API itself, with an account login. The gateway forwards the CLI's
    `Authorization` header unchanged.
    """

    def __repr__(self) -> str:
        return "CliLogin()"


class VertexCredentials:
    """Machine credentials for Vertex AI (Application Default Credentials), with a Google Cloud
    project and location.

    The access token is obtained with the first of these that exists:

    - the file in GOOGLE_APPLICATION_CREDENTIALS
    - gcloud's own file (in CLOUDSDK_CONFIG, or below HOME)
    - the metadata server of a Google machine (GCE_METADATA_HOST), which gives tokens to programs on
      this machine

    These environment variables are read from `environ`. `network` contains the proxy and the
    certificates with which tokens are requested.

    There is one exception: a credentials file of the type `external_account` whose source is AWS or
    an executable. For such a file, google-auth reads variables such as AWS_* and
    GOOGLE_EXTERNAL_ACCOUNT_* from the environment of this process, not from `environ`.
    """

    def __init__(
        self, project: str, location: str, environ: Mapping[str, str], network: NetworkSettings
    ) -> None:
        """Check and store the values. Raises `GeminidsError` if the project or the location
        contains invalid characters.
        """
        self.project = _checked(project, _PROJECT, "project", "GOOGLE_CLOUD_PROJECT")
        self.location = _checked(location, _LOCATION, "location", "GOOGLE_CLOUD_LOCATION")
        self._environ = environ
        self._network = network
        self._source: TokenSource | None = None

    def __repr__(self) -> str:
        return f"VertexCredentials({self.project!r}, {self.location!r})"

    def check_available(self) -> None:
        """Check, without sending a request, whether an access token can probably be obtained.
        Raises `GeminidsError` if google-auth is not installed, if no credentials are found, or if
        the credentials file cannot be read.
        """
        if not _has_google_auth():
            raise GeminidsError(
                "Vertex AI with machine credentials needs google-auth, which is not installed",
                hint="Run `pip install 'geminids[vertex]'`.",
            )
        path = credentials_file(self._environ)
        if path is not None:
            read_credentials_file(path)
        elif not _may_have_metadata(self._environ):
            raise GeminidsError("no Google Cloud credentials were found for Vertex AI", hint=LOGIN_HINT)

    async def token(self) -> AccessToken:
        """Return an access token that is valid for the next request. Raises `SignInError` if no
        token can be obtained.
        """
        if self._source is None:
            # Imported late, because the module imports asyncio and our HTTP client.
            from geminids.gateway.forward.access_token import token_source

            self._source = token_source(self._environ, self._network)
        return await self._source.token()

    def reject(self, token: AccessToken) -> None:
        """Discard an access token that the API has refused. The next call of `token` gets a new
        one.
        """
        if self._source is not None:
            self._source.reject(token)


Credential = ApiKey | VertexCredentials | CliLogin


def _checked(value: str, pattern: re.Pattern[str], noun: str, variable: str) -> str:
    value = value.strip()
    if not pattern.fullmatch(value):
        raise GeminidsError(
            f"{value!r} is not a valid Google Cloud {noun}", hint=f"Set {variable} to a valid {noun}."
        )
    return value


def _has_google_auth() -> bool:
    try:
        return find_spec("google.auth") is not None
    except (ImportError, ValueError):
        return False


def _may_have_metadata(environ: Mapping[str, str]) -> bool:
    """Return whether this machine may have a metadata server, which gives tokens to programs on a
    Google machine. This function sends no request.
    """
    if environ.get("NO_GCE_CHECK", "").lower() == "true":
        return False
    if any(environ.get(name) for name in _MACHINE_VARIABLES):
        return True
    try:
        return _PRODUCT_NAME.read_text().strip().startswith("Google")
    except OSError:
        return False
