"""What we set for a run, over the user's own settings."""

from __future__ import annotations

from geminids.options import Options
from geminids.toolchain.settings import Settings, SettingsProblem, merge, read_settings

__all__ = ["Settings", "SettingsProblem", "merge", "our_settings", "read_settings"]


def our_settings(options: Options, auth_type: str | None) -> Settings:
    """What we set: lean starts, nothing deleted behind the user's back, and what the options ask for."""
    general: Settings = {
        # The CLI's start-up cleanup can delete live sessions (GEMINI_CLI.md, the data-loss bug).
        "sessionRetention": {"enabled": False},
        # Else each turn calls an update_topic tool that nobody asked for.
        "topicUpdateNarration": False,
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
    }
    ours: Settings = {
        "general": general,
        "privacy": {"usageStatisticsEnabled": False},
        "ui": {"showCompatibilityWarnings": False},
    }
    if options.max_attempts is not None:
        general["maxAttempts"] = options.max_attempts
    if options.max_turns is not None:
        ours["model"] = {"maxSessionTurns": options.max_turns}
    if auth_type is not None:
        ours["security"] = {"auth": {"selectedType": auth_type}}
    return ours
