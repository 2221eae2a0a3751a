"""Find what could widen the permissions of a run in its folder, and make the CLI ignore it."""

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
from geminids.launch.prompt.context_files import TextProblem, check_texts

__all__ = ["Distrust", "Found", "Workspace", "distrust", "look_at"]

_BIGGEST = 4 * 1024 * 1024
_MOST_FOLDERS = 500
_MOST_NAMES = 1000
_HOOK_SWITCHES = ("enabled", "disabled", "notifications")


class Found(msgspec.Struct, frozen=True):
    """One thing that was found: what it is, its name, and the file that it is in."""

    kind: str
    name: str
    file: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.file})" if self.name else f"{self.kind} ({self.file})"


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """What the folder brings with it."""

    cwd: Path
    settings: Settings = {}
    env_names: tuple[str, ...] = ()
    gemini_env_names: tuple[str, ...] = ()
    """Those of them that stand in a `.gemini/.env`: there is no setting that keeps the CLI from reading it."""
    skills: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()


def look_at(
    cwd: str,
    home: Path,
    skills: tuple[Found, ...] = (),
    texts: Sequence[str] = ("GEMINI.md",),
    *,
    further: Sequence[str] = (),
) -> Workspace:
    """Read the folder's own `.gemini`, `.agents` and `.env`; raises `WorkspaceProblem` for what cannot be read.

    `home` is the user's: what lies there is the user's word, also where the folder is in it or is it. `texts` are
    the names of the files that stay what they are: text for the model.
    """
    folder = Path(cwd)
    own = folder / ".gemini"
    is_home = _same(folder, home)
    settings = {} if is_home else _settings(own / "settings.json")
    env_files = tuple(_env_files(folder, home))
    names = {file: _names_in(file) for file in env_files}
    agents = () if is_home else _entries(own / "agents", (".md", ".toml"))
    commands = () if is_home else _commands(own / "commands")
    _check_texts(cwd, texts, further)
    found = [
        *_found_in_settings(settings, ".gemini/settings.json"),
        *(Found("env file", _telling(file), _short(file, folder)) for file in env_files),
        *skills,
        *(Found("agent", name, ".gemini/agents") for name in agents),
        *(Found("command", f"/{name}", ".gemini/commands") for name in commands),
    ]
    for kind, name in (("extension", "extensions"), ("policy", "policies")):
        entries = () if is_home else _entries(own / name, None)
        found += [Found(kind, entry, f".gemini/{name}") for entry in entries]
    if not is_home and os.path.exists(own / "system.md"):
        found.append(Found("system prompt", "", ".gemini/system.md"))
    return Workspace(
        cwd=folder,
        settings=settings,
        env_names=_all(names.values()),
        gemini_env_names=_all(found for file, found in names.items() if file.parent.name == ".gemini"),
        skills=tuple(skill.name for skill in skills),
        commands=commands,
        found=tuple(found),
    )


def _names_in(file: Path) -> tuple[str, ...]:
    names = names_in(_text(file))
    if len(names) > _MOST_NAMES:
        # Each may have to be set, and a system takes only so many.
        hint = "Take it away, or run with trust_workspace."
        raise WorkspaceProblem(f"{file} has more than {_MOST_NAMES:,} variables", hint)
    return names


def _all(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))


def _settings(file: Path) -> Settings:
    text = _text(file)
    try:
        return read_settings(text, str(file))
    except SettingsProblem as problem:
        # The CLI reads it in an untrusted folder too, and ends with exit 52.
        raise WorkspaceProblem(str(problem), "Mend that file or take it away.") from None
    except RecursionError:
        raise WorkspaceProblem(f"{file} is nested too deeply", "Mend that file or take it away.") from None


def _found_in_settings(settings: Settings, file: str) -> Iterator[Found]:
    for event, name in _hooks(settings):
        yield Found("hook", f"{event} {name}", file)
    servers = settings.get("mcpServers")
    for name in servers if isinstance(servers, dict) else ():
        yield Found("MCP server", name, file)
    for name, value in settings.items():
        if name == "$schema" or (name == "mcpServers" and isinstance(value, dict)):
            continue
        if name == "hooks" and isinstance(value, dict):
            # Beside the events stand switches: one of them turns off hooks of the user's.
            value = {switch: value[switch] for switch in _HOOK_SWITCHES if switch in value}
        for path in _leaves(name, value):
            yield Found("setting", path, file)


def _leaves(path: str, value: Any) -> Iterator[str]:
    waiting = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{path}.{name}", inner) for name, inner in reversed(value.items())]
        else:
            yield path


def _hooks(settings: Settings) -> Iterator[tuple[str, str]]:
    """Event and name of every hook: the name is its own, or its command (hookRegistry.ts)."""
    hooks = settings.get("hooks")
    for event, groups in hooks.items() if isinstance(hooks, dict) else ():
        for group in groups if isinstance(groups, list) else ():
            inner = group.get("hooks") if isinstance(group, dict) else None
            for hook in inner if isinstance(inner, list) else ():
                if isinstance(hook, dict):
                    name = hook.get("name") or hook.get("command")
                    yield event, name if isinstance(name, str) else ""


def _env_files(folder: Path, home: Path) -> Iterator[Path]:
    """Those that the CLI would look at, from the folder upwards; the home's are the user's own."""
    for place in (folder, *folder.parents):
        if _same(place, home):
            continue
        for name in (".gemini/.env", ".env"):
            if os.path.exists(place / name):
                yield place / name


def _telling(file: Path) -> str:
    """Those of its variables that a user may miss: a key that is not read is a riddle."""
    names = [name for name in names_in(_text(file)) if name.startswith(("GEMINI_", "GOOGLE_"))]
    return f"with {', '.join(names)}" if names else ""


def _check_texts(cwd: str, names: Sequence[str], further: Sequence[str]) -> None:
    try:
        check_texts(cwd, names, further=further)
    except TextProblem as problem:
        hint = "Take it away, or run with trust_workspace if that file may be sent to the model."
        raise WorkspaceProblem(str(problem), hint) from None


def _text(file: Path) -> str:
    """A file of the workspace, or nothing where there is none; never waits, whatever it is."""
    try:
        seen = file.stat()
        if stat.S_ISDIR(seen.st_mode) and file.name == ".env":
            return ""  # `python -m venv .env`: the CLI passes over it too
        if not stat.S_ISREG(seen.st_mode):
            raise WorkspaceProblem(
                f"{file} is no regular file", "Take it away: Gemini CLI would wait for it."
            )
        if seen.st_size > _BIGGEST:
            raise WorkspaceProblem(f"{file} has {seen.st_size:,} bytes", "Take it away, or make it smaller.")
        return file.read_text("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise WorkspaceProblem(f"{file} cannot be read: {error.strerror}", "Mend its permissions.") from None


def _entries(folder: Path, suffixes: tuple[str, ...] | None) -> tuple[str, ...]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ()
    return tuple(name for name in names if suffixes is None or name.endswith(suffixes))


def _commands(folder: Path) -> tuple[str, ...]:
    """Slash commands by name; a folder is a part of the name (`git/commit.toml` is /git:commit)."""
    found: list[str] = []
    # By links too, as the CLI does; one to `/` shall not keep us for ever.
    for count, (place, _, names) in enumerate(os.walk(folder, followlinks=True)):
        if count == _MOST_FOLDERS:
            hint = "Take some away, or run with trust_workspace."
            raise WorkspaceProblem(f"{folder} has more than {_MOST_FOLDERS} folders", hint)
        parts = Path(place).relative_to(folder).parts
        found += [":".join((*parts, name.removesuffix(".toml"))) for name in names if name.endswith(".toml")]
    return tuple(sorted(found))


def _short(file: Path, folder: Path) -> str:
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)


def _same(one: Path, other: Path) -> bool:
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False


# What an untrusted `.env` may still set (settings.ts, AUTH_ENV_VAR_WHITELIST).
_STILL_READ = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
_TRUSTING = ("GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_CLI_TRUSTED_FOLDERS_PATH")


class Distrust(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan has to do about a workspace: settings over ours, variables to drop or to set, flags."""

    settings: Settings = {}
    drop: tuple[str, ...] = ()
    env: dict[str, str] = {}
    blank: tuple[str, ...] = ()
    """Variables to set to nothing if they are unset: the CLI never overwrites a variable that exists by a `.env`."""
    flags: tuple[str, ...] = ()


def distrust(workspace: Workspace, release: Release, users: Settings, environ: Mapping[str, str]) -> Distrust:
    """How to run in this folder with nothing of it having power; raises `WorkspaceProblem` where that cannot be.

    `users` are the settings that shall hold: the user's own, with those of this run over them. `environ` is the
    environment of the run before the gateway's variables.
    """
    if environ.get("CLOUD_SHELL") == "true" and "GOOGLE_CLOUD_PROJECT" in workspace.env_names:
        # There, and for this name alone, the file beats the environment (settings.ts, setUpCloudShellEnvironment).
        raise WorkspaceProblem(
            "a .env of the repository names a GOOGLE_CLOUD_PROJECT, which Gemini CLI follows in Cloud Shell",
            "Trust the folder with trust_workspace, or take it out of the file.",
        )
    settings: Settings = {
        # Off, it would make every folder a trusted one.
        "security": {"folderTrust": {"enabled": True}},
        "advanced": {"ignoreLocalEnv": True},
    }
    if workspace.skills:
        settings["skills"] = {"disabled": [*_list(users, "skills.disabled"), *workspace.skills]}
    names = workspace.env_names
    if release.ignores_local_env and _value(workspace.settings, "advanced.ignoreLocalEnv") is None:
        # No more than needed: a program that reads its own `.env` takes what is there, be it empty, for an answer.
        # (Settings are cached for 10 s: after a slower start, the repository's would count at the second look.)
        names = (*workspace.gemini_env_names, *(name for name in names if name in _STILL_READ))
    return Distrust(settings=settings, drop=_TRUSTING, blank=names, flags=("--skip-trust",))


def _value(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(settings: Settings, path: str) -> list[Any]:
    value = _value(settings, path)
    return list(value) if isinstance(value, list) else []
