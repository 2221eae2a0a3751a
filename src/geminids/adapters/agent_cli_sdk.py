"""agent-cli-sdk's interface: run a prompt (`execute`), and list what the CLI supports (`capabilities`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from geminids.client import open_run, stream_sync
from geminids.config.paths import Places
from geminids.dialects.claude.execute_result import Executed, ExecutedCollector, executed, refused
from geminids.errors import OptionsError, ToolchainError
from geminids.gemini import find, models_of
from geminids.options import Options

if TYPE_CHECKING:
    from geminids.warm.permissions.decide import OnPermission

__all__ = [
    "PERMISSION_MODES",
    "Capabilities",
    "Executed",
    "ModelName",
    "capabilities",
    "execute",
    "execute_sync",
]

# Claude's permission modes, and the CLI's approval modes.
PERMISSION_MODES = {
    "default": "default",
    "plan": "plan",
    "acceptEdits": "auto_edit",
    "bypassPermissions": "yolo",
}


async def execute(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    permission_mode: str | None = None,
    json: bool = False,
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Executed:
    """Run the agent to its end. Never raises for a failed run or invalid options: see `error`.

    `json` returns the JSON value in the agent's text as `data`. `fields` are options by name.
    """
    collector = ExecutedCollector()
    try:
        fields |= _approval(permission_mode)
        async with open_run(prompt, options, on_permission=on_permission, **fields) as run:
            while (batch := await run.next_batch()) is not None:
                collector.add(batch)
    except OptionsError as error:
        return refused(str(error))
    return collector.finish(json=json)


def execute_sync(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    permission_mode: str | None = None,
    json: bool = False,
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Executed:
    """`execute` without async.

    >>> execute_sync("", cwd=".").success, execute_sync("hello", permission_mode="yes").exit_code
    (False, -1)
    """
    try:
        fields |= _approval(permission_mode)
        return executed(stream_sync(prompt, options, on_permission=on_permission, **fields), json=json)
    except OptionsError as error:
        return refused(str(error))


def _approval(mode: str | None) -> dict[str, str]:
    if mode is None:
        return {}
    if not isinstance(mode, str) or mode not in PERMISSION_MODES:
        known = ", ".join(PERMISSION_MODES)
        raise OptionsError([("permission_mode", f"{mode!r} is not one of {known}")])
    return {"approval": PERMISSION_MODES[mode]}


class ModelName(msgspec.Struct, frozen=True):
    """A model in a form."""

    id: str
    name: str


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the installed CLI supports. `version`, `supports_web_search` and `supports_thinking` are our additions."""

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
    """Return the capabilities of the release that a run would use.

    Without a supported release, `installed` is False and nothing is supported. Slash commands are
    never supported: a headless CLI runs only a few of them.
    """
    try:
        gemini_cli = find(gemini, environ=environ, places=places)
    except (ToolchainError, OSError):
        gemini_cli = None
    if gemini_cli is not None and not gemini_cli.release.is_supported:
        gemini_cli = None
    models = models_of(gemini_cli.release) if gemini_cli else ()
    return Capabilities(
        supports_slash_commands=False,
        supports_models=bool(models),
        supports_web_search=gemini_cli is not None,
        supports_thinking=gemini_cli is not None,
        models=tuple(ModelName(model.id, _name(model.id)) for model in models),
        installed=gemini_cli is not None,
        cli_path=str(gemini_cli.entry) if gemini_cli else None,
        version=gemini_cli.version if gemini_cli else None,
    )


def _name(model_id: str) -> str:
    """Return the label of a model id.

    >>> _name("gemini-2.5-flash-lite"), _name("auto")
    ('Gemini 2.5 Flash Lite', 'Auto')
    """
    return " ".join(part.capitalize() for part in model_id.split("-"))
