"""`geminids config`: show the options of runs and where they are set, and change them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from geminids.config import editor
from geminids.config.files import PROJECT_FILE, find_project_file, user_file
from geminids.config.loader import Loaded, load_options
from geminids.errors import OptionsError
from geminids.options import McpServer, Options
from geminids.options.flags import fields
from geminids.redact import MASK, Redactor, is_secret_name, secrets_in_words, secrets_of

__all__ = ["config", "masked"]

_cwd = click.option("--cwd", metavar="DIR", help="The working folder of the run.  [default: .]")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_project = click.option(
    "--project", is_flag=True, help="Change the project's geminids.toml instead of your config.toml."
)


@click.group()
def config() -> None:
    """Show and change the configuration of runs.

    A value comes from a flag, an environment variable (GEMINIDS_MODEL), the project's geminids.toml,
    your config.toml, or the default, in this order. Names look like gemini.model,
    gemini.permissions.shell or gemini.env.NAME; the prefix "gemini." is optional.
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
        line = f"{name:<{width}}  {_format_value(value):<24}  {origin}"
        click.secho(line, dim=origin == "default")


@config.command()
@click.argument("name")
@_json
@_cwd
def get(name: str, as_json: bool, cwd: str | None) -> int:
    """Print one value. The exit code is 1 if it is not set and has no default."""
    key = editor.key_of(name)
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
        click.echo(_format_value(value, whole=True))
    else:
        click.echo(f"gemini.{'.'.join(key)} is not set and has no default", err=True)
    return 1 if _is_empty(value) else 0


@config.command("set")
@click.argument("name")
@click.argument("value")
@_project
@_cwd
def set_value(name: str, value: str, project: bool, cwd: str | None) -> None:
    """Set one value in your config.toml. VALUE is text, or a list or table in TOML."""
    path = _file_to_change(project, cwd)
    editor.set_value(path, name, value, private=not project)
    click.echo(f"set in {path}", err=True)
    _warn_if_invalid(cwd)


@config.command()
@click.argument("name")
@_project
@_cwd
def unset(name: str, project: bool, cwd: str | None) -> int:
    """Remove one value. The exit code is 1 if it was not set."""
    path = _file_to_change(project, cwd)
    was_set = editor.unset_value(path, name)
    click.echo(f"removed from {path}" if was_set else f"{name} is not set in {path}", err=True)
    return 0 if was_set else 1


@config.command()
@click.argument("folder", default=".")
def trust(folder: str) -> None:
    """Trust FOLDER: its geminids.toml may then set every option, including permissions."""
    if not os.path.isdir(folder):
        raise click.UsageError(f"{folder} is not a folder")
    is_new = editor.trust(_file_to_change(False, None), folder)
    click.echo(
        f"{os.path.realpath(folder)} {'is trusted now' if is_new else 'was already trusted'}", err=True
    )


@config.command()
@click.argument("folder", default=".")
def untrust(folder: str) -> int:
    """Stop trusting FOLDER. The exit code is 1 if it was not trusted."""
    was_trusted = editor.untrust(_file_to_change(False, None), folder)
    click.echo(
        f"{os.path.realpath(folder)} {'is no longer trusted' if was_trusted else 'was not trusted'}", err=True
    )
    return 0 if was_trusted else 1


@config.command()
@_json
@_cwd
def path(as_json: bool, cwd: str | None) -> None:
    """Print the paths of your config.toml and of the project's geminids.toml."""
    paths = {"user": user_file(os.environ), "project": find_project_file(cwd or ".", os.environ)}
    if as_json:
        _print_json(paths)
        return
    for kind, file in paths.items():
        absent = "" if file and os.path.exists(file) else " (absent)" if file else "none"
        click.echo(f"{kind:<8} {file or ''}{absent}")


def _load(cwd: str | None) -> Loaded:
    loaded = load_options(cwd)
    for warning in loaded.warnings:
        click.echo(f"geminids: {warning}", err=True)
    return loaded


def _rows(loaded: Loaded) -> Iterator[tuple[str, Any, str]]:
    """Yield the name, the value and the origin of each option. Secrets in the values are masked."""
    values = msgspec.to_builtins(masked(loaded.options))
    for field in fields():
        group, _, name = field.name.rpartition(".")
        group_values = values.get(group, {}) if group else values
        default = msgspec.to_builtins(field.default)
        yield f"gemini.{field.name}", group_values.get(name, default), _origin(loaded, field.name)


def _origin(loaded: Loaded, name: str) -> str:
    inner = [origin for key, origin in loaded.origins.items() if key.startswith(f"{name}.")]
    return ", ".join(dict.fromkeys(inner)) or loaded.origins.get(name, "default")


def _file_to_change(project: bool, cwd: str | None) -> str:
    if not project:
        return user_file(os.environ)
    return find_project_file(cwd or ".", os.environ) or os.path.join(
        os.path.realpath(cwd or "."), PROJECT_FILE
    )


def _warn_if_invalid(cwd: str | None) -> None:
    try:
        _load(cwd)
    except OptionsError as error:
        click.echo(f"geminids: with this change, a run in this folder would fail: {error}", err=True)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value))


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (list, tuple, dict)) and not value)


def _format_value(value: Any, *, whole: bool = False) -> str:
    encoded = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "" if _is_empty(value) else encoded
    line = text.replace("\n", "\\n")
    return text if whole else line if len(line) <= 60 else f"{line[:57]}..."


_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def masked(options: Options) -> Options:
    """Return the options with `***` in place of secrets in `env` and `mcp_servers`.

    These values are masked: all HTTP headers, variables with the name of a secret (such as
    `API_TOKEN`), and user names and passwords in URLs. A known secret is also masked if it occurs
    in another value.

    >>> masked(Options(env={"API_TOKEN": "hunter2hunter2", "LANG": "C"})).env
    {'API_TOKEN': '***', 'LANG': 'C'}
    """
    known = set(secrets_of(options.env))
    for server in options.mcp_servers.values():
        known |= secrets_of(server.env) | {value for value in server.headers.values() if len(value) >= 8}
        known |= secrets_in_words((*server.args, server.url or ""))
    redactor = Redactor(known)
    servers = {name: _mask_server(server, redactor) for name, server in options.mcp_servers.items()}
    return msgspec.structs.replace(options, env=_mask_variables(options.env, redactor), mcp_servers=servers)


def _mask_server(server: McpServer, redactor: Redactor) -> McpServer:
    return msgspec.structs.replace(
        server,
        env=_mask_variables(server.env, redactor),
        headers=dict.fromkeys(server.headers, MASK),
        args=tuple(redactor.text(word) for word in server.args),
        url=_USER_IN_URL.sub(MASK, redactor.text(server.url)) if server.url else server.url,
    )


def _mask_variables(variables: dict[str, str], redactor: Redactor) -> dict[str, str]:
    return {
        name: MASK if is_secret_name(name) and value else redactor.text(value)
        for name, value in variables.items()
    }
