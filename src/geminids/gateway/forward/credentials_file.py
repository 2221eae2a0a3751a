"""Find and read the file with Application Default Credentials of Google Cloud."""

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
    """The file with machine credentials for an environment; None if there is none.

    Raises `GeminidsError` if GOOGLE_APPLICATION_CREDENTIALS names a file that does not exist.
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
    """The content of a credentials file. Raises `GeminidsError`, whose message does not show the
    content."""
    try:
        info = json.loads(path.read_bytes())
    except OSError as error:
        raise GeminidsError(
            f"the credentials file {path} cannot be read: {error.strerror or error}", hint=LOGIN_HINT
        ) from None
    except ValueError:
        raise GeminidsError(f"the credentials file {path} is not JSON", hint=LOGIN_HINT) from None
    if not isinstance(info, dict) or not isinstance(info.get("type"), str):
        raise GeminidsError(f"the credentials file {path} has no type", hint=LOGIN_HINT)
    return info
