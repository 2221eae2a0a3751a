"""Runs through the gateway against a server that plays Google: the key, the releases, and the options."""

from __future__ import annotations

from typing import Any

import pytest

import geminids
from fake_google import FakeGoogle

__all__ = ["KEY", "RELEASES", "through"]

KEY = "AIzaSy-not-a-real-key-0123456789"
RELEASES = ["0.61.0", pytest.param("0.54.4", marks=pytest.mark.deep)]


def through(world: Any, google: FakeGoogle | str, **fields: Any) -> geminids.Options:
    """Options of a run whose API is this server, or this URL; `env` is added to."""
    url = google if isinstance(google, str) else google.url
    env = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": KEY, **fields.pop("env", {})}
    return world.options(**{"env": env, **fields})  # type: ignore[no-any-return]
