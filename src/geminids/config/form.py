"""A form's values, or a TOML file's, to `Options`: names in either spelling, text where a form has nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from geminids.config.fields import Field, fields, server_fields
from geminids.errors import OptionsError
from geminids.options import McpServer, Options, Permissions, make_options

__all__ = [
    "NOT_GIVEN",
    "Problem",
    "build_config",
    "field_named",
    "flatten",
    "is_field",
    "nested",
    "no_such_field",
    "read_value",
    "validate_config",
]

NOT_GIVEN: Any = object()

# What the Leadmetrics document calls them.
_ALIASES = {
    "prompt_template": "template",
    "instructions_file_path": "instructions",
    "timeout_sec": "timeout",
    "grace_sec": "grace",
}
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with one field of a form."""

    name: str
    message: str


def build_config(form: Mapping[str, object]) -> Options:
    """Options of what a form or a file gives; raises one `OptionsError` that names every problem.

    Text stands for numbers, switches, lists (one a line) and mappings (`NAME=value` lines) too, and empty text for
    "not given". `promptTemplate` and its kin are understood, and so is `maxTurns` for `max_turns`.

    >>> build_config({"model": "flash", "timeoutSec": "120", "yolo": True}).timeout
    120.0
    """
    flat, problems = flatten(form)
    values: dict[str, Any] = {}
    for name, raw in flat.items():
        try:
            value = read_value(field_named(name), raw)
        except ValueError as error:
            problems.append((name, str(error)))
        else:
            if value is not NOT_GIVEN:
                values[name] = value
    try:
        options = make_options(**nested(values))
    except OptionsError as error:
        problems += error.problems
    if problems:
        raise OptionsError(problems)
    return options


def validate_config(form: Mapping[str, object]) -> tuple[Problem, ...]:
    """Every problem of a form, by the name of its field; none where `build_config` gives options.

    >>> [problem.name for problem in validate_config({"timeout": "soon", "modle": "pro"})]
    ['modle', 'timeout']
    """
    try:
        build_config(form)
    except OptionsError as error:
        return tuple(Problem(name, message) for name, message in error.problems)
    return ()


def field_named(name: str) -> Field:
    return _by_name()[name]


def is_field(name: str) -> bool:
    return name in _by_name()


def flatten(form: Mapping[str, object]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The raw values by field, `permissions` taken apart, and what is wrong with the names."""
    flat: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for given, raw in _entries(form):
        name = _snake(given)
        if name == "yolo":
            name, raw = "approval", _approval_of(raw)
        if name == "permissions":
            problems.append((given, f"is of type {type(raw).__name__}, not a table of permissions"))
        elif name not in _by_name():
            problems.append((given, no_such_field(name)))
        elif name in flat and raw is not NOT_GIVEN and flat[name] != raw:
            problems.append((given, "is given twice, with two values"))
        elif raw is not NOT_GIVEN:
            flat[name] = raw
    return flat, problems


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by field, as `make_options` takes them."""
    made = {name: value for name, value in values.items() if not name.startswith("permissions.")}
    powers = {name[12:]: value for name, value in values.items() if name.startswith("permissions.")}
    if powers:
        made["permissions"] = Permissions(**powers)
    return made


def read_value(field: Field, raw: Any, *, commas: bool = False) -> Any:
    """A raw value as its field stores it, or `NOT_GIVEN`; what it cannot be is left as it is, for `make_options`.

    `commas`: a list that is given as text has them between its values.
    """
    if isinstance(raw, str):
        return _read_text(field, raw, commas) if raw != "" else NOT_GIVEN
    if field.name == "mcp_servers" and isinstance(raw, Mapping):
        return {name: _server(str(name), server) for name, server in raw.items()}
    if field.kind == "list" and isinstance(raw, list):
        return tuple(raw)
    if field.kind == "mapping" and isinstance(raw, Mapping):
        return dict(raw)
    return raw


def _entries(form: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
    for given, raw in form.items():
        if isinstance(raw, Permissions):
            raw = msgspec.to_builtins(raw)
        if given == "permissions" and isinstance(raw, Mapping):
            for name, value in raw.items():
                yield f"permissions.{name}", value
        else:
            yield str(given), raw


def _snake(name: str) -> str:
    made = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return _ALIASES.get(made, made)


def _approval_of(yolo: Any) -> Any:
    word = yolo.strip().lower() if isinstance(yolo, str) else yolo
    if word is True or word in _TRUE:
        return "yolo"
    return NOT_GIVEN if word in (False, None, "", *_FALSE) else yolo


def no_such_field(name: str) -> str:
    """What to say of a name that is none, with the nearest that is."""
    import difflib  # imported late: only for a mistake

    ends = {one.rpartition(".")[2]: one for one in _by_name()}
    near = difflib.get_close_matches(name, _by_name(), n=1)
    found = near[0] if near else ends.get(next(iter(difflib.get_close_matches(name, ends, n=1)), ""))
    return f"there is no such option; did you mean {found}?" if found else "there is no such option"


@cache
def _by_name() -> dict[str, Field]:
    return {field.name: field for field in fields()}


def _read_text(field: Field, text: str, commas: bool) -> Any:
    word = text.strip()
    if field.kind == "flag":
        return True if word.lower() in _TRUE else False if word.lower() in _FALSE else text
    if field.kind == "number":
        return None if field.nullable and word.lower() == "none" else _number(field, text)
    if field.name == "effort":
        return _number(field, text) if word.isdecimal() else text
    if field.kind == "list":
        return _split(text, commas=commas or field.commas)
    if field.kind == "mapping":
        return _servers_of(text) if field.name == "mcp_servers" else _pairs(text.splitlines())
    return text


def _number(field: Field, text: str) -> Any:
    try:
        return int(text) if field.whole else float(text)
    except ValueError:
        return text


def _split(text: str, *, commas: bool) -> tuple[str, ...]:
    parts = text.split(",") if commas and "\n" not in text else text.splitlines()
    return tuple(part.strip() for part in parts if part.strip())


def _pairs(lines: Iterable[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip():
            # The text is not shown: it may be a secret.
            raise ValueError("takes NAME=VALUE, one a line")
        found[name.strip()] = value
    return found


def _servers_of(text: str) -> Any:
    try:
        servers = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(servers, dict):
        raise ValueError("is no JSON object of names and servers")
    return {name: _server(name, server) for name, server in servers.items()}


def _server(name: str, raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return raw
    known = {field.name: field for field in server_fields()}
    given = {_snake(str(key)): value for key, value in raw.items()}
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ValueError(f"{name!r}: a server has no {', '.join(unknown)}; it has {', '.join(known)}")
    values = {key: read_value(known[key], value) for key, value in given.items()}
    return McpServer(**{key: value for key, value in values.items() if value is not NOT_GIVEN})
