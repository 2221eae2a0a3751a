"""Changes to a configuration file: checked first, comments and order kept, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from geminids.config.fields import server_fields
from geminids.config.files import SECTION, FileProblem, read_config
from geminids.config.flock import FileLock
from geminids.config.form import NOT_GIVEN, field_named, is_field, nested, no_such_field, read_value
from geminids.config.loader import TRUSTED, from_folder
from geminids.config.paths import Places, private_dir, write_private
from geminids.config.project_limits import is_inside
from geminids.errors import GeminidsError, OptionsError
from geminids.options import make_options

__all__ = ["key_of", "set_value", "trust", "unset_value", "untrust"]

_LONGEST_WAIT = 30.0


def key_of(name: str) -> tuple[str, ...]:
    """The parts of a name such as `gemini.model`, `model` or `permissions.shell`; raises for one that is none.

    >>> key_of("gemini.env.LANG")
    ('env', 'LANG')
    """
    plain = name.removeprefix(f"{SECTION}.") or name
    if is_field(plain):
        return tuple(plain.split("."))
    field, _, rest = plain.partition(".")
    if rest and is_field(field) and field_named(field).kind == "mapping":
        entry, _, inner = rest.partition(".") if field == "mcp_servers" else (rest, "", "")
        known = [one.name for one in server_fields()]
        if inner and inner not in known:
            raise OptionsError([(name, f"a server has no {inner}; it has {', '.join(known)}")])
        return (field, entry, inner) if inner else (field, entry)
    raise OptionsError([(name, no_such_field(plain))])


def set_value(path: str, name: str, text: str, *, private: bool) -> None:
    """Set one value, given as text; raises `OptionsError` for what it cannot be, and then changes nothing."""
    key = key_of(name)
    value = _from_here(key, _typed(text), "" if private else os.path.dirname(path))

    def change(document: Any) -> None:
        section = _table(document, SECTION, path)
        leaf = _checked(name, key, value, section, path)
        for part in key[:-1]:
            section = _table(section, part, path)
        section[key[-1]] = leaf

    _edit(path, change, private=private)


def unset_value(path: str, name: str) -> bool:
    """Take one value out, and tables that it leaves empty; False where it was not there."""
    key = key_of(name)
    found = False

    def change(document: Any) -> None:
        nonlocal found
        tables = [document]
        for part in (SECTION, *key[:-1]):
            if not isinstance(tables[-1].get(part), Mapping):
                return
            tables.append(tables[-1][part])
        found = tables[-1].pop(key[-1], None) is not None
        for part, table in zip((SECTION, *key[:-1]), tables[:-1], strict=True):
            if found and part != SECTION and not table[part]:
                table.remove(part)

    if os.path.exists(path):
        _edit(path, change, private=False)
    return found


def trust(path: str, folder: str) -> bool:
    """Add a folder to the trusted projects; False where it was there."""
    return _change_trusted(path, folder, add=True)


def untrust(path: str, folder: str) -> bool:
    """Take a folder out of the trusted projects; False where it was not there."""
    return _change_trusted(path, folder, add=False)


def _change_trusted(path: str, folder: str, *, add: bool) -> bool:
    real = os.path.realpath(folder)
    changed = False

    def change(document: Any) -> None:
        nonlocal changed
        listed = [str(one) for one in document.get(TRUSTED, ())]
        same = [one for one in listed if os.path.realpath(os.path.expanduser(one)) == real]
        changed = not same if add else bool(same)
        if changed and add:
            document.setdefault(TRUSTED, [])
            document[TRUSTED].append(real)
        elif changed:
            document[TRUSTED] = [one for one in listed if one not in same]

    if add or os.path.exists(path):
        _edit(path, change, private=True)
    return changed


def _typed(text: str) -> Any:
    """A list or a table as TOML writes it; all else is text, which its field reads."""
    if not text.startswith(("[", "{")):
        return text
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def _from_here(key: tuple[str, ...], value: Any, folder: str) -> Any:
    """A path is typed from the current folder, and kept whole, or from the project's folder where it lies in it."""
    if len(key) > 1 or not field_named(key[0]).paths:
        return value
    whole = from_folder(field_named(key[0]), value, os.getcwd())
    if not folder or not isinstance(whole, str) or whole == value:
        return whole
    return os.path.relpath(whole, folder) if is_inside(whole, folder) else whole


def _checked(name: str, key: tuple[str, ...], value: Any, section: Any, path: str) -> Any:
    """The value as the file stores it, once it is known that the options can have it."""
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
        raise OptionsError([(name, "is empty; `geminids config unset` takes it out")])
    # A template may come later, and variables without one are no mistake of this value.
    make_options(**nested({field.name: used, **({"template": "x"} if field.name == "variables" else {})}))
    stored: Any = "none" if read is None else msgspec.to_builtins(read)
    for part in key[1:] if field.kind == "mapping" else ():
        stored = stored[part]
    return stored


def _table(parent: Any, name: str, path: str) -> Any:
    import tomlkit

    if name not in parent:
        # A table of tables needs no line of its own.
        parent[name] = tomlkit.table(is_super_table=name == "mcp_servers")
    if not isinstance(parent[name], Mapping):
        raise OptionsError([(path, f"{name} is not a table")])
    return parent[name]


def _edit(path: str, change: Callable[[Any], None], *, private: bool) -> None:
    import tomlkit

    # Where a link leads (a folder of dotfiles) is what is written.
    real = Path(os.path.realpath(path))
    with _alone(real):
        try:
            read_config(str(real))
            text = real.read_text("utf-8-sig") if real.exists() else ""
        except FileProblem as problem:
            raise OptionsError([(problem.where, problem.what)]) from None
        document = tomlkit.parse(text)
        change(document)
        made = tomlkit.dumps(document)
        if made != text:
            _write(real, made, private=private)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two changes at once happen one after the other."""
    import hashlib

    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    lock = FileLock.take(private_dir(Places.of().root / "locks") / f"{name}.lock", wait=_LONGEST_WAIT)
    if lock is None:
        raise GeminidsError(f"{path} is being changed by another process", hint="Try again.")
    with closing(lock):
        yield


def _write(path: Path, text: str, *, private: bool) -> None:
    mode = 0o600 if private else (path.stat().st_mode & 0o777 if path.exists() else 0o644)
    try:
        write_private(path, text.encode(), mode=mode, sync=True)
    except OSError as error:
        raise GeminidsError(f"{path} cannot be written: {error.strerror}") from None
