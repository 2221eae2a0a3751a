"""Find and read the credentials file of Google Cloud (Application Default Credentials)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geminids.errors import GeminidsError

__all__ = ["LOGIN_HINT", "credentials_file", "read_credentials_file"]

_GCLOUD_FILE = "application_default_credentials.json"
LOGIN_HINT = (
    "Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the file of a "
    "service account."
)


def credentials_file(environ: Mapping[str, str]) -> Path | None:
    """Return the path of Google Cloud's credentials file (Application Default Credentials), or None
    if no such file exists. `environ` contains the environment variables of the run.

    Raises `GeminidsError` if GOOGLE_APPLICATION_CREDENTIALS contains the path of a file that does
    not exist.
    """
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS", "").strip()
    if named:
        path = Path(named)
        if not path.is_file():
            raise GeminidsError(
                f"GOOGLE_APPLICATION_CREDENTIALS is {named}, which is not a file", hint=LOGIN_HINT
            )
        return path
    folder = environ.get("CLOUDSDK_CONFIG", "").strip()
    if not folder and environ.get("HOME"):
        folder = os.path.join(environ["HOME"], ".config", "gcloud")
    path = Path(folder, _GCLOUD_FILE)
    return path if folder and path.is_file() else None


def read_credentials_file(path: Path) -> dict[str, Any]:
    """Read a credentials file of Google Cloud, and return its JSON object. Raises `GeminidsError`
    if the file cannot be read or is not valid. The error never shows the content.
    """
    try:
        info = json.loads(path.read_bytes())
    except OSError as error:
        raise GeminidsError(
            f"the credentials file {path} cannot be read: {error.strerror or error}", hint=LOGIN_HINT
        ) from None
    except ValueError:
        raise GeminidsError(f"the credentials file {path} is not JSON", hint=LOGIN_HINT) from None
    if not isinstance(info, dict) or not isinstance(info.get("type"), str):
        raise GeminidsError(f"the credentials file {path} has no field `type`", hint=LOGIN_HINT)
    return info
