"""Key, releases and options for runs through the gateway with a `FakeGoogle` server."""

from __future__ import annotations

from typing import Any

import pytest

import geminids
from fake_google import FakeGoogle

__all__ = ["KEY", "RELEASES", "options_for"]

KEY = "AIzaSy-not-a-real-key-0123456789"
RELEASES = ["0.61.0", pytest.param("0.54.4", marks=pytest.mark.deep)]


def options_for(world: Any, google: FakeGoogle | str, **fields: Any) -> geminids.Options:
    """Return options for a run that uses this server, or the server at this URL, as its API.

    `env` adds environment variables."""
    url = google if isinstance(google, str) else google.url
    env = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": KEY, **fields.pop("env", {})}
    return world.options(**{"env": env, **fields})  # type: ignore[no-any-return]
