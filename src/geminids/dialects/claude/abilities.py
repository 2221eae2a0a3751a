"""What the installed Gemini CLI can do, in the form that agent-cli-sdk's callers ask for it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from geminids.config.places import Places
from geminids.errors import ToolchainError
from geminids.toolchain import find, models_of

__all__ = ["Capabilities", "ModelName", "capabilities"]


class ModelName(msgspec.Struct, frozen=True):
    """A model as a form offers it."""

    id: str
    name: str


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What can be asked of it. `version`, `supports_web_search` and `supports_thinking` are ours besides."""

    supports_slash_commands: bool
    supports_models: bool
    supports_web_search: bool
    supports_thinking: bool
    models: tuple[ModelName, ...]
    installed: bool
    cli_path: str | None = None
    version: str | None = None


def capabilities(
    gemini: str | None = None, *, environ: Mapping[str, str] | None = None, places: Places | None = None
) -> Capabilities:
    """Those of the release that a run would use. `installed` is False, and nothing is offered, where there is none
    that geminids runs.

    Slash commands are the CLI's own: headless it runs few of them, and none is offered.
    """
    try:
        found = find(gemini, environ=environ, places=places)
    except (ToolchainError, OSError):
        found = None
    if found is not None and not found.release.is_supported:
        found = None
    models = models_of(found.release) if found else ()
    return Capabilities(
        supports_slash_commands=False,
        supports_models=bool(models),
        supports_web_search=found is not None,
        supports_thinking=found is not None,
        models=tuple(ModelName(model.id, _name(model.id)) for model in models),
        installed=found is not None,
        cli_path=str(found.entry) if found else None,
        version=found.version if found else None,
    )


def _name(model_id: str) -> str:
    """An id for people.

    >>> _name("gemini-2.5-flash-lite"), _name("auto")
    ('Gemini 2.5 Flash Lite', 'Auto')
    """
    return " ".join(part.capitalize() for part in model_id.split("-"))
