"""A trusted folder's own settings can choose another sign-in, which goes past the gateway: that is refused."""

from __future__ import annotations

from pathlib import Path

from geminids.launch.auth import selected_type
from geminids.launch.refused import Refused
from geminids.launch.settings import SettingsProblem, read_settings

__all__ = ["refuse_other_sign_in"]

_KEY = "gemini-api-key"


def refuse_other_sign_in(cwd: str) -> None:
    """Raise `Refused` where the folder signs in otherwise than by a key: its settings outrank those that we write."""
    file = Path(cwd, ".gemini", "settings.json")
    try:
        chosen = selected_type(read_settings(file.read_text("utf-8"), str(file)))
    except (OSError, UnicodeDecodeError, SettingsProblem):
        return  # the CLI cannot read it either
    if chosen is not None and chosen != _KEY:
        raise Refused(
            "bad_option",
            f"the gateway needs an API key, and the folder signs in otherwise: {file} says {chosen}",
            "Take security.auth.selectedType out of that file, or run without trust_workspace or the gateway.",
        )
