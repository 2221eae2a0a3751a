"""Find the items in a run's folder that would change what the CLI does, such as hooks.

This module also builds the settings, variables and flags that make the CLI ignore these items.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from geminids.gemini import Release
from geminids.gemini.settings_file import Settings, SettingsProblem, read_settings
from geminids.launch.environment import names_in
from geminids.launch.errors import WorkspaceProblem
from geminids.launch.prompt.context_files import ContextFileProblem, check_context_files

__all__ = ["Workspace", "WorkspaceItem", "WorkspaceOverrides", "ignore_workspace", "read_workspace"]

_BIGGEST = 4 * 1024 * 1024
_MOST_FOLDERS = 500
_MOST_NAMES = 1000
_HOOK_SWITCHES = ("enabled", "disabled", "notifications")


class WorkspaceItem(msgspec.Struct, frozen=True):
    """An item of a run's folder, such as a hook or an MCP server, and the file that contains it."""

    kind: str
    name: str
    file: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.file})" if self.name else f"{self.kind} ({self.file})"


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """The items in a folder that Gemini CLI would use if the folder were trusted.

    `env_names` are the variables that the folder's `.env` files set. `skills` are the names of
    skills, and `commands` the names of slash commands. `items` lists all items, for reports.
    """

    cwd: Path
    settings: Settings = {}
    env_names: tuple[str, ...] = ()
    gemini_env_names: tuple[str, ...] = ()
    """The part of `env_names` that a `.gemini/.env` file sets.

    No setting makes the CLI ignore a `.gemini/.env` file.
    """
    skills: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    items: tuple[WorkspaceItem, ...] = ()


def read_workspace(
    cwd: str,
    home: Path,
    skills: tuple[WorkspaceItem, ...] = (),
    context_files: Sequence[str] = ("GEMINI.md",),
    *,
    further: Sequence[str] = (),
) -> Workspace:
    """Read the `.gemini` folder and the `.env` files of the untrusted folder `cwd`.

    `home` is the user's home. Its own files are trusted, so they are not read. `skills` are the
    folder's skills that are not trusted.

    `context_files` are the names of context files. They are checked, because the CLI sends their
    text to the model even if the folder is not trusted. `further` are other folders that the run
    may use; only their context files are checked.

    Raises `WorkspaceProblem` if a file makes a run impossible or unsafe.
    """
    folder = Path(cwd)
    own = folder / ".gemini"
    is_home = _is_same(folder, home)
    settings = {} if is_home else _settings(own / "settings.json")
    env_files = tuple(_env_files(folder, home))
    env_names = {file: _names_in(file) for file in env_files}
    agents = () if is_home else _entries(own / "agents", (".md", ".toml"))
    commands = () if is_home else _commands(own / "commands")
    _check_context_files(cwd, context_files, further)
    items = [
        *_items_in_settings(settings, ".gemini/settings.json"),
        *(WorkspaceItem("env file", _google_names(file), _short(file, folder)) for file in env_files),
        *skills,
        *(WorkspaceItem("agent", name, ".gemini/agents") for name in agents),
        *(WorkspaceItem("command", f"/{name}", ".gemini/commands") for name in commands),
    ]
    for kind, name in (("extension", "extensions"), ("policy", "policies")):
        entries = () if is_home else _entries(own / name, None)
        items += [WorkspaceItem(kind, entry, f".gemini/{name}") for entry in entries]
    if not is_home and os.path.exists(own / "system.md"):
        items.append(WorkspaceItem("system prompt", "", ".gemini/system.md"))
    return Workspace(
        cwd=folder,
        settings=settings,
        env_names=_unique(env_names.values()),
        gemini_env_names=_unique(names for file, names in env_names.items() if file.parent.name == ".gemini"),
        skills=tuple(skill.name for skill in skills),
        commands=commands,
        items=tuple(items),
    )


def _names_in(file: Path) -> tuple[str, ...]:
    names = names_in(_text(file))
    if len(names) > _MOST_NAMES:
        # We may have to set each of these variables, and the size of an environment is limited.
        hint = "Remove the file, or trust the folder with `trust_workspace`."
        raise WorkspaceProblem(f"{file} has more than {_MOST_NAMES:,} variables: too many to override", hint)
    return names


def _unique(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in groups for name in names))


def _settings(file: Path) -> Settings:
    text = _text(file)
    try:
        return read_settings(text, str(file))
    except SettingsProblem as problem:
        # The CLI reads this file even if the folder is not trusted, and exits with code 52.
        raise WorkspaceProblem(str(problem), "Fix or remove the file.") from None
    except RecursionError:
        raise WorkspaceProblem(
            f"{file} cannot be read: its JSON has too many levels of nested objects or lists",
            "Fix or remove the file.",
        ) from None


def _items_in_settings(settings: Settings, file: str) -> Iterator[WorkspaceItem]:
    for event, name in _hooks(settings):
        yield WorkspaceItem("hook", f"{event} {name}", file)
    servers = settings.get("mcpServers")
    for name in servers if isinstance(servers, dict) else ():
        yield WorkspaceItem("MCP server", name, file)
    for name, value in settings.items():
        if name == "$schema" or (name == "mcpServers" and isinstance(value, dict)):
            continue
        if name == "hooks" and isinstance(value, dict):
            # `hooks` contains not only events but also these switches. One of them turns off the
            # user's hooks.
            value = {switch: value[switch] for switch in _HOOK_SWITCHES if switch in value}
        for path in _leaves(name, value):
            yield WorkspaceItem("setting", path, file)


def _leaves(path: str, value: Any) -> Iterator[str]:
    waiting = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{path}.{name}", inner) for name, inner in reversed(value.items())]
        else:
            yield path


def _hooks(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the event and the name of every hook in the settings.

    If a hook has no name, its command is used as the name, as in Gemini CLI (hookRegistry.ts).
    """
    hooks = settings.get("hooks")
    for event, groups in hooks.items() if isinstance(hooks, dict) else ():
        for group in groups if isinstance(groups, list) else ():
            inner = group.get("hooks") if isinstance(group, dict) else None
            for hook in inner if isinstance(inner, list) else ():
                if isinstance(hook, dict):
                    name = hook.get("name") or hook.get("command")
                    yield event, name if isinstance(name, str) else ""


def _env_files(folder: Path, home: Path) -> Iterator[Path]:
    """Yield the `.env` files in `folder` and the folders above it, which the CLI could read.

    Files in the user's home are omitted.
    """
    for parent in (folder, *folder.parents):
        if _is_same(parent, home):
            continue
        for name in (".gemini/.env", ".env"):
            if os.path.exists(parent / name):
                yield parent / name


def _google_names(file: Path) -> str:
    """Return a text with the names of the variables in an env file that start with GEMINI_ or
    GOOGLE_. Return "" if there are no such variables.

    The text shows the user which key the run ignores.
    """
    names = [name for name in names_in(_text(file)) if name.startswith(("GEMINI_", "GOOGLE_"))]
    return f"with {', '.join(names)}" if names else ""


def _check_context_files(cwd: str, names: Sequence[str], further: Sequence[str]) -> None:
    try:
        check_context_files(cwd, names, further=further)
    except ContextFileProblem as problem:
        hint = (
            "Remove this context file, or trust the folder with `trust_workspace` if all files that "
            "the context file includes may be sent to the model."
        )
        raise WorkspaceProblem(str(problem), hint) from None


def _text(file: Path) -> str:
    """Return the text of a file of the workspace, or "" if the file does not exist.

    If the path is a folder with the name `.env`, return "" too. Raises `WorkspaceProblem` if the
    file is too large, cannot be read, or is not a regular file. Reading a FIFO, for example, could
    block forever.
    """
    try:
        status = file.stat()
        if stat.S_ISDIR(status.st_mode) and file.name == ".env":
            return ""  # for example, from `python -m venv .env`; the CLI ignores this folder too
        if not stat.S_ISREG(status.st_mode):
            raise WorkspaceProblem(
                f"{file} is not a regular file",
                "Remove this file: Gemini CLI could wait forever when it reads the file.",
            )
        if status.st_size > _BIGGEST:
            hint = f"Remove the file, or make it smaller than {_BIGGEST:,} bytes."
            raise WorkspaceProblem(f"{file} is too large: {status.st_size:,} bytes", hint)
        return file.read_text("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise WorkspaceProblem(
            f"{file} cannot be read: {error.strerror}", "Make the file readable."
        ) from None


def _entries(folder: Path, suffixes: tuple[str, ...] | None) -> tuple[str, ...]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ()
    return tuple(name for name in names if suffixes is None or name.endswith(suffixes))


def _commands(folder: Path) -> tuple[str, ...]:
    """Return the names of the slash commands in a folder.

    Folder names are part of a command's name: `git/commit.toml` is the command /git:commit. Raises
    `WorkspaceProblem` if `folder` contains more than 500 folders, because these are too many to
    search.
    """
    commands: list[str] = []
    # Follow links, as the CLI does. Without the limit, a link to `/` would make us read the whole
    # file system.
    for count, (path, _, names) in enumerate(os.walk(folder, followlinks=True)):
        if count == _MOST_FOLDERS:
            hint = "Remove some of these folders, or trust the folder with `trust_workspace`."
            raise WorkspaceProblem(
                f"{folder} contains more than {_MOST_FOLDERS} folders: too many to search for slash commands",
                hint,
            )
        parts = Path(path).relative_to(folder).parts
        commands += [
            ":".join((*parts, name.removesuffix(".toml"))) for name in names if name.endswith(".toml")
        ]
    return tuple(sorted(commands))


def _short(file: Path, folder: Path) -> str:
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path == other or path.samefile(other)
    except OSError:
        return False


# Variables that the CLI reads from a `.env` file even in an untrusted folder (settings.ts,
# AUTH_ENV_VAR_WHITELIST).
_STILL_READ = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
_TRUSTING = ("GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_CLI_TRUSTED_FOLDERS_PATH")


class WorkspaceOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, variables and flags that make the CLI ignore the contents of the workspace.

    `drop` lists variables to remove from the environment. `env` contains variables to set.
    """

    settings: Settings = {}
    drop: tuple[str, ...] = ()
    env: dict[str, str] = {}
    blank: tuple[str, ...] = ()
    """Variables to set to "" if they are not set, so that a `.env` file cannot set them."""
    flags: tuple[str, ...] = ()


def ignore_workspace(
    workspace: Workspace, release: Release, users: Settings, environ: Mapping[str, str]
) -> WorkspaceOverrides:
    """Return the settings, variables and flags that make the CLI ignore the workspace.

    `release` is the release of the CLI. `users` are the user's settings, merged with the settings
    of this run. `environ` is the environment of the run, without the variables of the gateway.

    Raises `WorkspaceProblem` if a `.env` file sets a variable that the CLI would use even in an
    untrusted folder. This is possible only in Cloud Shell.
    """
    if environ.get("CLOUD_SHELL") == "true" and "GOOGLE_CLOUD_PROJECT" in workspace.env_names:
        # In Cloud Shell, the `.env` file overrides the environment for this one variable
        # (settings.ts, setUpCloudShellEnvironment).
        raise WorkspaceProblem(
            "a .env file of the repository sets GOOGLE_CLOUD_PROJECT, "
            "and Gemini CLI would use this value when it runs in Cloud Shell",
            "Trust the folder with `trust_workspace`, or remove GOOGLE_CLOUD_PROJECT from the file.",
        )
    settings: Settings = {
        # If folder trust were disabled, the CLI would trust every folder.
        "security": {"folderTrust": {"enabled": True}},
        "advanced": {"ignoreLocalEnv": True},
    }
    if workspace.skills:
        settings["skills"] = {"disabled": [*_list(users, "skills.disabled"), *workspace.skills]}
    names = workspace.env_names
    if release.ignores_local_env and _value(workspace.settings, "advanced.ignoreLocalEnv") is None:
        # Set as few variables to "" as possible: a program of the repository that reads the same
        # `.env` would use our empty value. But if the repository itself sets ignoreLocalEnv, set
        # all variables to "". The CLI caches settings for 10 s; if its start takes longer, it uses
        # the repository's value of ignoreLocalEnv.
        names = (*workspace.gemini_env_names, *(name for name in names if name in _STILL_READ))
    return WorkspaceOverrides(settings=settings, drop=_TRUSTING, blank=names, flags=("--skip-trust",))


def _value(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(settings: Settings, path: str) -> list[Any]:
    value = _value(settings, path)
    return list(value) if isinstance(value, list) else []
