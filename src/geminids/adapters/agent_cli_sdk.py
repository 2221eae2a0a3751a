"""The functions and types of agent-cli-sdk, for Gemini: `execute`, `load_session`, `parse`,
`detect_cli`.

`execute` runs a prompt. `parse` and `load_session` convert stored messages to the type
`UnifiedMessage`. `get_capabilities` returns what the installed CLI supports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from geminids import sessions
from geminids.client import open_run, stream_sync
from geminids.config.paths import Places
from geminids.dialects.claude.conversation import UnifiedContent, UnifiedMessage, as_dict, messages
from geminids.dialects.claude.conversation import message as unified_message
from geminids.dialects.claude.execute_result import Executed, ExecutedCollector, executed, refused
from geminids.errors import OptionsError, ToolchainError
from geminids.gemini import Gemini, find, models_of
from geminids.gemini.protocol.journal.records import StoredMessage, message_of
from geminids.options import Options, make_options

if TYPE_CHECKING:
    from geminids.warm.permissions.answer import OnPermission

__all__ = [
    "PERMISSION_MODES",
    "Capabilities",
    "Executed",
    "ModelName",
    "UnifiedContent",
    "UnifiedMessage",
    "as_dict",
    "detect_cli",
    "execute",
    "execute_sync",
    "get_capabilities",
    "load_session",
    "parse",
]

# Maps Claude's permission modes to the CLI's approval modes.
PERMISSION_MODES = {
    "default": "default",
    "plan": "plan",
    "acceptEdits": "auto_edit",
    "bypassPermissions": "yolo",
}
# Maps the names that agent-cli-sdk uses in stored JSON to the parameters of `execute`.
_STORED_NAMES = {"permissionMode": "permission_mode", "workingDir": "working_dir"}


def parse(message: Mapping[str, Any] | StoredMessage) -> UnifiedMessage:
    """Convert one message of a Gemini session to a `UnifiedMessage`.

    `message` is an object of the session's `messages` list, or a message that `geminids.sessions`
    has loaded.

    >>> parse({"id": "m1", "type": "user", "content": "hello"}).role
    'user'
    """
    return unified_message(message if isinstance(message, StoredMessage) else message_of(dict(message)))


def load_session(
    session_id: str | None = None,
    project_path: str | os.PathLike[str] | None = None,
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> list[UnifiedMessage]:
    """Return the messages of a stored session of a project.

    Without `session_id`, load the most recently changed session that can be resumed. `project_path`
    is the folder of the project; without it, the project in the working directory is used.

    Raises `SessionNotFound`, which lists the searched folders, if there is no such session. Raises
    `SessionDamaged` if the session file cannot be read. Both errors are in `geminids.sessions`.
    """
    project = project_path or os.getcwd()
    session: str | Path = session_id or "latest"
    if not session_id:
        stored = sessions.find(project, home=home, environ=environ, places=places)
        newest = next((info for info in stored if info.resumable is not False), None)
        if newest is not None:
            session = Path(newest.file)
    return list(messages(sessions.load(session, project, home=home, environ=environ, places=places)))


def detect_cli(*, environ: Mapping[str, str] | None = None, places: Places | None = None) -> str | None:
    """Return the path of the Gemini CLI that `execute` would run; None if no supported CLI is
    found.

    If `GEMINI_CLI_PATH` names a Gemini CLI, the result is the path of this CLI, or None if geminids
    does not support its release. The variable is ignored if its file does not exist, is a folder,
    or prints no version with `--version`.

    Otherwise, these places are searched in this order: PATH, the releases that geminids has
    installed, and the folders of package managers and version managers. The search skips releases
    that geminids does not support, and programs that print no version.
    """
    cli = _supported_cli(None, environ, places)
    return None if cli is None else str(cli.path)


def _supported_cli(
    wanted: str | None, environ: Mapping[str, str] | None, places: Places | None
) -> Gemini | None:
    """Return the CLI that `execute` would run; None if no supported CLI is found.

    `wanted` is a path or a version, as in the option `gemini`. If it is None, search for a CLI.
    """
    environ = os.environ if environ is None else environ
    named = None if wanted is not None else environ.get("GEMINI_CLI_PATH")
    cli: Gemini | None = None
    if not (named and _is_folder(named)):
        try:
            cli = find(wanted, environ=environ, places=places)
        except (ToolchainError, OSError):
            pass
    if cli is not None and cli.version is not None:
        return cli if cli.release.is_supported else None
    # `find` reports an error if GEMINI_CLI_PATH names nothing. agent-cli-sdk ignores such a value,
    # so search again without it.
    return _supported_cli(None, {**environ, "GEMINI_CLI_PATH": ""}, places) if named else None


def _is_folder(named: str) -> bool:
    """Return whether `named`, the value of `GEMINI_CLI_PATH`, is the path of a folder. Return False
    for a name without a slash."""
    return os.path.basename(named) != named and os.path.isdir(os.path.expanduser(named))


async def execute(
    prompt: str,
    options: Options | None = None,
    *,
    permission_mode: str | None = None,
    working_dir: str | os.PathLike[str] | None = None,
    json: bool = False,
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Executed:
    """Run the agent until it ends, and return the result. A failed run or an invalid option does
    not raise an exception: the field `error` of the result says what is wrong.

    `permission_mode` is a permission mode of Claude, a key of `PERMISSION_MODES`. With `json=True`,
    the result's `data` is the JSON value in the agent's text. `fields` are fields of `Options`. The
    names `permissionMode` and `workingDir` are also accepted, so that options stored as JSON can be
    passed with `execute(**stored)`.
    """
    collector = ExecutedCollector()
    try:
        fields = _run_fields(options, fields, permission_mode=permission_mode, working_dir=working_dir)
        async with open_run(prompt, options, on_permission=on_permission, **fields) as run:
            while (batch := await run.next_batch()) is not None:
                collector.add(batch)
    except OptionsError as error:
        return refused(str(error))
    return collector.finish(json=json)


def execute_sync(
    prompt: str,
    options: Options | None = None,
    *,
    permission_mode: str | None = None,
    working_dir: str | os.PathLike[str] | None = None,
    json: bool = False,
    on_permission: OnPermission | None = None,
    **fields: Any,
) -> Executed:
    """Run `execute` in a program without async.

    An empty prompt or an unknown permission mode gives a failed result, not an exception:

    >>> execute_sync("", cwd=".").success, execute_sync("hello", permission_mode="yes").exit_code
    (False, -1)
    """
    try:
        fields = _run_fields(options, fields, permission_mode=permission_mode, working_dir=working_dir)
        return executed(stream_sync(prompt, options, on_permission=on_permission, **fields), json=json)
    except OptionsError as error:
        return refused(str(error))


def _run_fields(options: Options | None, fields: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    """Convert `parameters` (the permission mode and the working folder) to fields of `Options`, and
    return them together with `fields`.

    Raises `OptionsError` if a value is invalid or is set by two parameters.
    """
    for stored_name, name in _STORED_NAMES.items():
        value = fields.pop(stored_name, None)
        if value is not None and parameters[name] is not None:
            raise OptionsError([(stored_name, f"cannot be used together with {name}")])
        parameters[name] = parameters[name] if value is None else value
    chosen: dict[str, Any] = {}
    if (mode := parameters["permission_mode"]) is not None:
        if not isinstance(mode, str) or mode not in PERMISSION_MODES:
            known = ", ".join(PERMISSION_MODES)
            raise OptionsError([("permission_mode", f"{mode!r} is not one of {known}")])
        chosen["approval"] = PERMISSION_MODES[mode]
    if (folder := parameters["working_dir"]) is not None:
        chosen["cwd"] = os.fspath(folder) if isinstance(folder, os.PathLike) else folder
    for name in chosen.keys() & fields.keys():
        parameter = "working_dir" if name == "cwd" else "permission_mode"
        raise OptionsError([(name, f"cannot be used together with {parameter}")])
    return fields | chosen | _detected(options, fields)


def _detected(options: Options | None, fields: dict[str, Any]) -> dict[str, str]:
    """Return the option `gemini` if the run needs it to start the CLI that `detect_cli` finds.
    Otherwise return an empty dict.

    - If the option `gemini` is already set, the dict is empty.
    - If `detect_cli` finds a CLI and `GEMINI_CLI_PATH` is set, the dict contains the path of this
      CLI. The run then ignores `GEMINI_CLI_PATH`. So a value that is not the path of a Gemini CLI
      has no effect, as in agent-cli-sdk.
    - If `detect_cli` finds a CLI and `GEMINI_CLI_PATH` is not set, the dict is empty, because the
      run finds the same CLI.
    - If `detect_cli` finds no CLI, but the run would start a wrong program, raises `OptionsError`.
      A wrong program is one that prints no version, or one in the folder that `GEMINI_CLI_PATH`
      names.
    - If `detect_cli` finds no CLI and the run would start no wrong program, the dict is empty. The
      run then reports the error.
    """
    chosen = {name: fields[name] for name in ("env", "gemini") if name in fields}
    run_options = make_options(options, **chosen)
    if run_options.gemini is not None:
        return {}
    environ = {**os.environ, **run_options.env}
    path = detect_cli(environ=environ)
    if path is not None:
        return {"gemini": path} if environ.get("GEMINI_CLI_PATH") else {}
    try:
        program = find(environ=environ)
    except (ToolchainError, OSError):
        return {}  # the run reports this error
    option = "GEMINI_CLI_PATH" if program.origin == "GEMINI_CLI_PATH" else "gemini"
    if program.version is None:
        raise OptionsError([(option, f"{program.path} is not Gemini CLI: --version prints no version")])
    if option == "GEMINI_CLI_PATH" and _is_folder(environ["GEMINI_CLI_PATH"]):
        raise OptionsError(
            [(option, f"{environ[option]} is a folder; use the path of the program `gemini` in it")]
        )
    return {}


class ModelName(msgspec.Struct, frozen=True):
    """A model that a user can choose: its id and a label."""

    id: str
    name: str


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the installed CLI supports. In JSON, the names of the fields are in camelCase.

    `cli_path` and `version` are None if no supported CLI is installed.
    """

    supports_slash_commands: bool
    supports_models: bool
    supports_web_search: bool
    supports_thinking: bool
    models: tuple[ModelName, ...]
    installed: bool
    cli_path: str | None = None
    version: str | None = None


def get_capabilities(
    *,
    gemini: str | None = None,
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> Capabilities:
    """Return the capabilities of the CLI that `execute` would run.

    `gemini` is the path or the version of a CLI, as in `Options`. If no supported CLI is found,
    `installed` is False, and so are all fields that begin with `supports_`.
    `supports_slash_commands` is always False: a headless CLI runs only a few slash commands.
    """
    cli = _supported_cli(gemini, environ, places)
    models = models_of(cli.release) if cli else ()
    return Capabilities(
        supports_slash_commands=False,
        supports_models=bool(models),
        supports_web_search=cli is not None,
        supports_thinking=cli is not None,
        models=tuple(ModelName(model.id, _label(model.id)) for model in models),
        installed=cli is not None,
        cli_path=str(cli.path) if cli else None,
        version=cli.version if cli else None,
    )


def _label(model_id: str) -> str:
    """Return the label of a model id.

    >>> _label("gemini-2.5-flash-lite"), _label("auto")
    ('Gemini 2.5 Flash Lite', 'Auto')
    """
    return " ".join(part.capitalize() for part in model_id.split("-"))
