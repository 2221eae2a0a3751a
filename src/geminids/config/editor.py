"""Change values in a configuration file.

Each change is validated first. Comments and the order of the keys are kept, and the file is
replaced atomically.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import tomlkit

from geminids.config.files import SECTION, FileProblem, read_config
from geminids.config.flock import FileLock
from geminids.config.form import NOT_GIVEN, field_named, is_field, nested, no_such_field, read_value
from geminids.config.loader import TRUSTED, from_folder
from geminids.config.paths import Places, private_dir, write_private
from geminids.config.project_limits import is_inside
from geminids.errors import GeminidsError, OptionsError
from geminids.options import make_options
from geminids.options.flags import server_fields

__all__ = ["key_of", "set_value", "trust", "unset_value", "untrust"]

_LONGEST_WAIT = 30.0


def key_of(name: str) -> tuple[str, ...]:
    """Split the name of an option, such as `gemini.model` or `permissions.shell`, into its parts.

    The prefix `gemini.` is removed. Raises `OptionsError` if there is no such option.

    >>> key_of("gemini.env.LANG")
    ('env', 'LANG')
    """
    plain = name.removeprefix(f"{SECTION}.") or name
    if is_field(plain):
        return tuple(plain.split("."))
    field, _, rest = plain.partition(".")
    if rest and is_field(field) and field_named(field).kind == "mapping":
        entry, _, inner = rest.partition(".") if field == "mcp_servers" else (rest, "", "")
        known = [server_field.name for server_field in server_fields()]
        if inner and inner not in known:
            raise OptionsError([(name, f"an MCP server has no field {inner}; use {', '.join(known)}")])
        return (field, entry, inner) if inner else (field, entry)
    raise OptionsError([(name, no_such_field(plain))])


def set_value(path: str, name: str, text: str, *, private: bool) -> None:
    """Set the option `name` in the configuration file `path` to the value that `text` describes.

    A relative path in `text` is relative to the current folder. It is stored as an absolute path.
    But if `private` is False and the path is inside the folder of the configuration file, it is
    stored relative to that folder.

    If `private` is True, only the owner of the file can read it afterwards. If the value is not
    valid, raise `OptionsError` and do not change the file.
    """
    key = key_of(name)
    value = _resolved(key, _parsed(text), "" if private else os.path.dirname(path))

    def change(document: Any) -> None:
        section = _table(document, SECTION, path)
        stored = _checked(name, key, value, section, path)
        for part in key[:-1]:
            section = _table(section, part, path)
        section[key[-1]] = stored

    _edit(path, change, private=private)


def unset_value(path: str, name: str) -> bool:
    """Remove the option `name` from the configuration file `path`. Also remove tables that become
    empty.

    Return True if the option was set in the file, otherwise False.
    """
    key = key_of(name)
    removed = False

    def change(document: Any) -> None:
        nonlocal removed
        tables = [document]
        for part in (SECTION, *key[:-1]):
            if not isinstance(tables[-1].get(part), Mapping):
                return
            tables.append(tables[-1][part])
        removed = tables[-1].pop(key[-1], None) is not None
        for part, table in zip((SECTION, *key[:-1]), tables[:-1], strict=True):
            if removed and part != SECTION and not table[part]:
                table.remove(part)

    if os.path.exists(path):
        _edit(path, change, private=False)
    return removed


def trust(path: str, folder: str) -> bool:
    """Add a folder to the trusted projects in the user's configuration file `path`.

    Return True if the folder was added, or False if it was already trusted.
    """
    return _change_trusted(path, folder, add=True)


def untrust(path: str, folder: str) -> bool:
    """Remove a folder from the trusted projects in the user's configuration file `path`.

    Return True if the folder was removed, or False if it was not trusted.
    """
    return _change_trusted(path, folder, add=False)


def _change_trusted(path: str, folder: str, *, add: bool) -> bool:
    real = os.path.realpath(folder)
    changed = False

    def change(document: Any) -> None:
        nonlocal changed
        listed = [str(entry) for entry in document.get(TRUSTED, ())]
        same = [entry for entry in listed if os.path.realpath(os.path.expanduser(entry)) == real]
        changed = not same if add else bool(same)
        if changed and add:
            document.setdefault(TRUSTED, [])
            document[TRUSTED].append(real)
        elif changed:
            document[TRUSTED] = [entry for entry in listed if entry not in same]

    if add or os.path.exists(path):
        _edit(path, change, private=True)
    return changed


def _parsed(text: str) -> Any:
    """Parse `text` if it is a valid TOML list or table; return any other text unchanged.

    Later, `read_value` converts an unchanged text to the type of its field.
    """
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def _resolved(key: tuple[str, ...], value: Any, folder: str) -> Any:
    """Return the value to store for the option `key`.

    Absolute paths and values that are not paths are returned unchanged. A relative path is relative
    to the current folder. If the path leads into `folder`, return it relative to `folder`;
    otherwise, or if `folder` is "", return it as an absolute path.
    """
    if len(key) > 1 or not field_named(key[0]).paths:
        return value
    absolute = from_folder(field_named(key[0]), value, os.getcwd())
    if not folder or not isinstance(absolute, str) or absolute == value:
        return absolute
    return os.path.relpath(absolute, folder) if is_inside(absolute, folder) else absolute


def _checked(name: str, key: tuple[str, ...], value: Any, section: Any, path: str) -> Any:
    """Validate the new value of the option `name`, and return it in the form that is written to the
    TOML file. Raises `OptionsError` if the value is not valid.

    `key` contains the parts of the name. `section` is the table of the file that contains the
    options. `path` is the path of the file.
    """
    field = field_named(".".join(key[:2]) if key[0] == "permissions" else key[0])
    raw = value
    if field.kind == "mapping" and len(key) > 1:
        raw = {key[1]: value}
        if len(key) > 2:
            known = section.get(key[0], {}).get(key[1], {})
            raw = {key[1]: {**(known.unwrap() if known else {}), key[2]: value}}
    try:
        read = read_value(field, raw, commas=True)
        used = read_value(field, from_folder(field, raw, os.path.dirname(path)), commas=True)
    except ValueError as error:
        raise OptionsError([(name, str(error))]) from None
    if read is NOT_GIVEN:
        raise OptionsError([(name, "is empty; use `geminids config unset` to remove it")])
    # `variables` are valid only together with a template, which may be set later. So validate them
    # with an example template.
    make_options(**nested({field.name: used, **({"template": "x"} if field.name == "variables" else {})}))
    stored: Any = "none" if read is None else msgspec.to_builtins(read)
    for part in key[1:] if field.kind == "mapping" else ():
        stored = stored[part]
    return stored


def _table(parent: Any, name: str, path: str) -> Any:
    if name not in parent:
        # `mcp_servers` contains only tables, so TOML needs no `[mcp_servers]` line.
        parent[name] = tomlkit.table(is_super_table=name == "mcp_servers")
    if not isinstance(parent[name], Mapping):
        raise OptionsError([(path, f"{name} is not a table")])
    return parent[name]


def _edit(path: str, change: Callable[[Any], None], *, private: bool) -> None:
    # If the file is a symbolic link (to a folder of dotfiles, for example), write to its target.
    real = Path(os.path.realpath(path))
    with _locked(real):
        try:
            read_config(str(real))
            text = real.read_text("utf-8-sig") if real.exists() else ""
        except FileProblem as problem:
            raise OptionsError([(problem.where, problem.problem)]) from None
        document = tomlkit.parse(text)
        change(document)
        changed = tomlkit.dumps(document)
        if changed != text:
            _write(real, changed, private=private)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock, so that only one process at a time changes the file `path`."""
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    lock = FileLock.take(private_dir(Places.of().root / "locks") / f"{name}.lock", wait=_LONGEST_WAIT)
    if lock is None:
        message = f"{path} was not changed: another process has locked it for {_LONGEST_WAIT:.0f} seconds"
        raise GeminidsError(message, hint="Try again.")
    with closing(lock):
        yield


def _write(path: Path, text: str, *, private: bool) -> None:
    mode = 0o600 if private else (path.stat().st_mode & 0o777 if path.exists() else 0o644)
    try:
        write_private(path, text.encode(), mode=mode, sync=True)
    except OSError as error:
        hint = "Check the permissions of the file and its folder, and the free disk space."
        raise GeminidsError(f"{path} cannot be written: {error.strerror}", hint=hint) from None
