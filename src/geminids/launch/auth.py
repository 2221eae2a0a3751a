"""Choose a sign-in that works without a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

__all__ = ["Auth", "AuthMode", "choose_auth", "selected_type"]

AuthMode = Literal["key", "vertex", "account", "adc", "other", "none"]


class Auth(msgspec.Struct, frozen=True):
    """A sign-in: its mode, its source, and the value for `security.auth.selectedType`.

    If `selected_type` is None, the setting stays as it is.
    """

    mode: AuthMode
    source: str
    selected_type: str | None = None


_MODES: dict[str, AuthMode] = {
    "gemini-api-key": "key",
    "vertex-ai": "vertex",
    "oauth-personal": "account",
    "login-with-google": "account",
    "cloud-shell": "adc",
    "compute-default-credentials": "adc",
}


def choose_auth(
    environ: Mapping[str, str], user_settings: Mapping[str, Any], workspace_type: str | None = None
) -> Auth:
    """Choose the sign-in from the environment, or else from the user's settings.

    `workspace_type` is the sign-in that a trusted folder's settings select. It wins, because in the
    CLI these settings override all others.

    The CLI itself prefers the user's settings to the environment. We do not: a key in the
    environment was set for this process. Without `selectedType`, a run with GOOGLE_GEMINI_BASE_URL
    exits with 41 whatever key it has (validateNonInterActiveAuth.ts does not know `gateway`).
    """
    if workspace_type:
        return Auth(_MODES.get(workspace_type, "other"), "the folder's settings, security.auth.selectedType")
    if environ.get("GOOGLE_GENAI_USE_GCA") == "true":
        return Auth("account", "GOOGLE_GENAI_USE_GCA", "oauth-personal")
    if environ.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return Auth("vertex", "GOOGLE_GENAI_USE_VERTEXAI", "vertex-ai")
    if environ.get("GEMINI_API_KEY"):
        return Auth("key", "GEMINI_API_KEY", "gemini-api-key")
    chosen = selected_type(user_settings)
    if chosen:
        return Auth(_MODES.get(chosen, "other"), "settings security.auth.selectedType")
    if environ.get("CLOUD_SHELL") == "true" or environ.get("GEMINI_CLI_USE_COMPUTE_ADC") == "true":
        return Auth("adc", "CLOUD_SHELL or GEMINI_CLI_USE_COMPUTE_ADC")
    return Auth("none", "nothing found")


def selected_type(settings: Mapping[str, Any]) -> str | None:
    """Return the sign-in that the settings select, if any."""
    value: Any = settings
    for name in ("security", "auth", "selectedType"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
