"""`geminids config`: show the configuration with origins, secrets masked, and change the files."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click
import msgspec

from geminids.options import McpServer, Options
from geminids.redact import MASK, Redactor, is_secret_name, secrets_in_words, secrets_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from geminids.config.loader import Loaded

__all__ = ["config", "masked"]

_cwd = click.option("--cwd", metavar="DIR", help="The working folder of the run.  [default: .]")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_project = click.option(
    "--project", is_flag=True, help="Change the project's geminids.toml, not your own file."
)


@click.group()
def config() -> None:
    """Show and change the configuration of runs.

    A value comes from a flag, an environment variable (GEMINIDS_MODEL), the project's geminids.toml,
    your config.toml, or the default, in this order. Names look like gemini.model,
    gemini.permissions.shell or gemini.env.NAME; the leading gemini. is optional.
    """


@config.command("list")
@_json
@_cwd
def list_values(as_json: bool, cwd: str | None) -> None:
    """Show every option with its value and the origin of the value."""
    rows = list(_rows(_load(cwd)))
    if as_json:
        _print_json([{"name": name, "value": value, "origin": origin} for name, value, origin in rows])
        return
    width = max(len(name) for name, _, _ in rows)
    for name, value, origin in rows:
        line = f"{name:<{width}}  {_shown(value):<24}  {origin}"
        click.secho(line, dim=origin == "default")


@config.command()
@click.argument("name")
@_json
@_cwd
def get(name: str, as_json: bool, cwd: str | None) -> int:
    """Print one value. Exit code 1: it is not set and has no default."""
    from geminids.config.editor import key_of

    key = key_of(name)
    loaded = _load(cwd)
    rows = {row: (value, origin) for row, value, origin in _rows(loaded)}
    field = ".".join(key[:2]) if key[0] == "permissions" else key[0]
    value, origin = rows[f"gemini.{field}"]
    for part in key[len(field.split(".")) :]:
        value = value.get(part) if isinstance(value, dict) else None
        origin = loaded.origins.get(f"{field}.{part}", origin)
    if as_json:
        _print_json({"name": f"gemini.{'.'.join(key)}", "value": value, "origin": origin})
    elif not _is_empty(value):
        click.echo(_shown(value, whole=True))
    else:
        click.echo(f"gemini.{'.'.join(key)} is not set and has no default", err=True)
    return 1 if _is_empty(value) else 0


@config.command("set")
@click.argument("name")
@click.argument("value")
@_project
@_cwd
def set_value(name: str, value: str, project: bool, cwd: str | None) -> None:
    """Set one value in your own file. VALUE is text, or a list or table in TOML."""
    from geminids.config import editor as edit

    path = _file(project, cwd)
    edit.set_value(path, name, value, private=not project)
    click.echo(f"set in {path}", err=True)
    _warn_if_invalid(cwd)


@config.command()
@click.argument("name")
@_project
@_cwd
def unset(name: str, project: bool, cwd: str | None) -> int:
    """Remove one value. Exit code 1: it was not set."""
    from geminids.config.editor import unset_value

    path = _file(project, cwd)
    was_set = unset_value(path, name)
    click.echo(f"removed from {path}" if was_set else f"{name} is not set in {path}", err=True)
    return 0 if was_set else 1


@config.command()
@click.argument("folder", default=".")
def trust(folder: str) -> None:
    """Trust FOLDER. Its geminids.toml can then set every option, also permissions."""
    from geminids.config import editor as edit

    if not os.path.isdir(folder):
        raise click.UsageError(f"{folder} is not a folder")
    is_new = edit.trust(_file(False, None), folder)
    click.echo(
        f"{os.path.realpath(folder)} {'is trusted now' if is_new else 'was already trusted'}", err=True
    )


@config.command()
@click.argument("folder", default=".")
def untrust(folder: str) -> int:
    """Stop trusting FOLDER. Exit code 1: it was not trusted."""
    from geminids.config import editor as edit

    was_trusted = edit.untrust(_file(False, None), folder)
    click.echo(
        f"{os.path.realpath(folder)} {'is no longer trusted' if was_trusted else 'was not trusted'}", err=True
    )
    return 0 if was_trusted else 1


@config.command()
@_json
@_cwd
def path(as_json: bool, cwd: str | None) -> None:
    """Print the paths of your config.toml and of the project's geminids.toml."""
    from geminids.config.files import find_project_file, user_file

    paths = {"user": user_file(os.environ), "project": find_project_file(cwd or ".", os.environ)}
    if as_json:
        _print_json(paths)
        return
    for kind, file in paths.items():
        absent = "" if file and os.path.exists(file) else " (absent)" if file else "none"
        click.echo(f"{kind:<8} {file or ''}{absent}")


def _load(cwd: str | None) -> Loaded:
    from geminids.config.loader import load_options

    loaded = load_options(cwd)
    for warning in loaded.warnings:
        click.echo(f"geminids: {warning}", err=True)
    return loaded


def _rows(loaded: Loaded) -> Iterator[tuple[str, Any, str]]:
    """Name, value (secrets masked) and origin of every field."""
    import msgspec

    from geminids.config.fields import fields

    values = msgspec.to_builtins(masked(loaded.options))
    for field in fields():
        owner, _, own = field.name.rpartition(".")
        given = values.get(owner, {}) if owner else values
        default = msgspec.to_builtins(field.default)
        yield f"gemini.{field.name}", given.get(own, default), _origin(loaded, field.name)


def _origin(loaded: Loaded, name: str) -> str:
    inner = [origin for key, origin in loaded.origins.items() if key.startswith(f"{name}.")]
    return ", ".join(dict.fromkeys(inner)) or loaded.origins.get(name, "default")


def _file(project: bool, cwd: str | None) -> str:
    from geminids.config.files import PROJECT_FILE, find_project_file, user_file

    if not project:
        return user_file(os.environ)
    return find_project_file(cwd or ".", os.environ) or os.path.join(
        os.path.realpath(cwd or "."), PROJECT_FILE
    )


def _warn_if_invalid(cwd: str | None) -> None:
    from geminids.errors import OptionsError

    try:
        _load(cwd)
    except OptionsError as error:
        click.echo(f"geminids: a run here would now fail: {error}", err=True)


def _print_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value))


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (list, tuple, dict)) and not value)


def _shown(value: Any, *, whole: bool = False) -> str:
    import json

    encoded = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "" if _is_empty(value) else encoded
    line = text.replace("\n", "\\n")
    return text if whole else line if len(line) <= 60 else f"{line[:57]}..."


_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def masked(options: Options) -> Options:
    """The options with `***` in place of headers and of variables with secret names.

    >>> masked(Options(env={"API_TOKEN": "hunter2hunter2", "LANG": "C"})).env
    {'API_TOKEN': '***', 'LANG': 'C'}
    """
    known = set(secrets_of(options.env))
    for server in options.mcp_servers.values():
        known |= secrets_of(server.env) | {value for value in server.headers.values() if len(value) >= 8}
        known |= secrets_in_words((*server.args, server.url or ""))
    redactor = Redactor(known)
    servers = {name: _server(server, redactor) for name, server in options.mcp_servers.items()}
    return msgspec.structs.replace(options, env=_variables(options.env, redactor), mcp_servers=servers)


def _server(server: McpServer, redactor: Redactor) -> McpServer:
    return msgspec.structs.replace(
        server,
        env=_variables(server.env, redactor),
        headers=dict.fromkeys(server.headers, MASK),
        args=tuple(redactor.text(word) for word in server.args),
        url=_USER_IN_URL.sub(MASK, redactor.text(server.url)) if server.url else server.url,
    )


def _variables(variables: dict[str, str], redactor: Redactor) -> dict[str, str]:
    return {
        name: MASK if is_secret_name(name) and value else redactor.text(value)
        for name, value in variables.items()
    }
