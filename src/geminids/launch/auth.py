"""Choose the sign-in of a run, so that it works headless."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

__all__ = ["Auth", "AuthMode", "choose_auth", "selected_type"]

AuthMode = Literal["key", "vertex", "account", "adc", "other", "none"]


class Auth(msgspec.Struct, frozen=True):
    """The mode, where it was found, and what to write as `security.auth.selectedType` (None: leave it)."""

    mode: AuthMode
    source: str
    selected_type: str | None = None


_OF_TYPE: dict[str, AuthMode] = {
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
    """Choose the sign-in: a trusted folder's settings first (`workspace_type`: the CLI lets them outrank the rest),
    then the environment, then the user's settings.

    The CLI itself puts settings before the environment. But a key in the environment was put there for this
    process, and without `selectedType` a run with GOOGLE_GEMINI_BASE_URL ends with exit 41 whatever key it has
    (validateNonInterActiveAuth.ts knows no `gateway`).
    """
    if workspace_type:
        return Auth(
            _OF_TYPE.get(workspace_type, "other"), "the folder's settings, security.auth.selectedType"
        )
    if environ.get("GOOGLE_GENAI_USE_GCA") == "true":
        return Auth("account", "GOOGLE_GENAI_USE_GCA", "oauth-personal")
    if environ.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return Auth("vertex", "GOOGLE_GENAI_USE_VERTEXAI", "vertex-ai")
    if environ.get("GEMINI_API_KEY"):
        return Auth("key", "GEMINI_API_KEY", "gemini-api-key")
    chosen = selected_type(user_settings)
    if chosen:
        return Auth(_OF_TYPE.get(chosen, "other"), "settings security.auth.selectedType")
    if environ.get("CLOUD_SHELL") == "true" or environ.get("GEMINI_CLI_USE_COMPUTE_ADC") == "true":
        return Auth("adc", "CLOUD_SHELL or GEMINI_CLI_USE_COMPUTE_ADC")
    return Auth("none", "nothing found")


def selected_type(settings: Mapping[str, Any]) -> str | None:
    """The sign-in that settings choose, if they do."""
    value: Any = settings
    for name in ("security", "auth", "selectedType"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
