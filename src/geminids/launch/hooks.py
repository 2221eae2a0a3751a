"""Hooks of the user's that a warm process would pass over: on ACP the CLI runs no `BeforeTool` hook (0.61.0)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from geminids.launch.home import SourceHome
from geminids.toolchain.settings import Settings, SettingsProblem, read_settings

__all__ = ["passed_over"]


def passed_over(source: SourceHome, workspace: Path | None = None) -> str | None:
    """Where such a hook stands, in the user's settings, in an extension, or in a folder that is trusted."""
    if _off(source.settings):
        return None
    if _has_hooks(source.settings):
        return f"the settings in {source.gemini}"
    return next((str(file) for file in _files(source, workspace) if _has_hooks(_read(file))), None)


def _files(source: SourceHome, workspace: Path | None) -> Iterator[Path]:
    yield from source.gemini.glob("extensions/*/hooks/hooks.json")
    if workspace is not None:
        yield workspace / ".gemini" / "settings.json"


def _read(file: Path) -> Settings:
    try:
        return read_settings(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError, SettingsProblem):
        return {}  # nor does the CLI run what it cannot read


def _off(settings: Settings) -> bool:
    config = settings.get("hooksConfig")
    return isinstance(config, dict) and config.get("enabled") is False


def _has_hooks(settings: Settings) -> bool:
    hooks = settings.get("hooks")
    return isinstance(hooks, dict) and bool(hooks.get("BeforeTool"))
