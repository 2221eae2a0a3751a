"""`geminids config`: show values with their origin and with secrets masked, and change the files."""

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

_cwd = click.option("--cwd", metavar="DIR", help="The folder that a run would work in.  [default: .]")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_project = click.option(
    "--project", is_flag=True, help="In the project's geminids.toml, not in your own file."
)


@click.group()
def config() -> None:
    """Show and change what runs are configured with.

    A value comes from a flag, else from a variable (GEMINIDS_MODEL), the project's geminids.toml, your own
    config.toml, or is the default. Names are gemini.model, gemini.permissions.shell, gemini.env.NAME; the
    leading gemini. can be left out.
    """


@config.command("list")
@_json
@_cwd
def list_values(as_json: bool, cwd: str | None) -> None:
    """Show every option with its value and where that comes from."""
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
    """Print one value. Exit code 1: it is not set, and there is no default."""
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
    elif not _is_nothing(value):
        click.echo(_shown(value, whole=True))
    else:
        click.echo(f"gemini.{'.'.join(key)} is not set, and has no default", err=True)
    return 1 if _is_nothing(value) else 0


@config.command("set")
@click.argument("name")
@click.argument("value")
@_project
@_cwd
def set_value(name: str, value: str, project: bool, cwd: str | None) -> None:
    """Set one value, in your own file. VALUE is text, or a list or table as TOML writes it."""
    from geminids.config import editor as edit

    path = _file(project, cwd)
    edit.set_value(path, name, value, private=not project)
    click.echo(f"set in {path}", err=True)
    _say_what_does_not_hold(cwd)


@config.command()
@click.argument("name")
@_project
@_cwd
def unset(name: str, project: bool, cwd: str | None) -> int:
    """Take one value out again. Exit code 1: it was not there."""
    from geminids.config.editor import unset_value

    path = _file(project, cwd)
    found = unset_value(path, name)
    click.echo(f"taken out of {path}" if found else f"{name} is not set in {path}", err=True)
    return 0 if found else 1


@config.command()
@click.argument("folder", default=".")
def trust(folder: str) -> None:
    """Let the geminids.toml in FOLDER set everything, also what gives power."""
    from geminids.config import editor as edit

    if not os.path.isdir(folder):
        raise click.UsageError(f"{folder} is not a folder")
    new = edit.trust(_file(False, None), folder)
    click.echo(f"{os.path.realpath(folder)} {'is trusted now' if new else 'was trusted already'}", err=True)


@config.command()
@click.argument("folder", default=".")
def untrust(folder: str) -> int:
    """Take that back. Exit code 1: it was not trusted."""
    from geminids.config import editor as edit

    found = edit.untrust(_file(False, None), folder)
    click.echo(
        f"{os.path.realpath(folder)} {'is not trusted any more' if found else 'was not trusted'}", err=True
    )
    return 0 if found else 1


@config.command()
@_json
@_cwd
def path(as_json: bool, cwd: str | None) -> None:
    """Print the paths of your own file and of the project's."""
    from geminids.config.files import find_project_file, user_file

    found = {"user": user_file(os.environ), "project": find_project_file(cwd or ".", os.environ)}
    if as_json:
        _print_json(found)
        return
    for kind, file in found.items():
        absent = "" if file and os.path.exists(file) else " (absent)" if file else "none"
        click.echo(f"{kind:<8} {file or ''}{absent}")


def _load(cwd: str | None) -> Loaded:
    from geminids.config.loader import load_options

    loaded = load_options(cwd)
    for warning in loaded.warnings:
        click.echo(f"geminids: {warning}", err=True)
    return loaded


def _rows(loaded: Loaded) -> Iterator[tuple[str, Any, str]]:
    """Name, value without secrets, and origin of every field."""
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


def _say_what_does_not_hold(cwd: str | None) -> None:
    from geminids.errors import OptionsError

    try:
        _load(cwd)
    except OptionsError as error:
        click.echo(f"geminids: a run here would be refused now: {error}", err=True)


def _print_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value))


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, (list, tuple, dict)) and not value)


def _shown(value: Any, *, whole: bool = False) -> str:
    import json

    spelled = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "" if _is_nothing(value) else spelled
    line = text.replace("\n", "\\n")
    return text if whole else line if len(line) <= 60 else f"{line[:57]}..."


_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def masked(options: Options) -> Options:
    """The same options with `***` for values of variables with secret names, and for all headers.

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
