"""Convert the values of a form or of a TOML file to `Options`.

The names of options can be in snake_case or in camelCase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from geminids.errors import OptionsError
from geminids.options import McpServer, Options, Permissions, make_options
from geminids.options.flags import Field, fields, server_fields
from geminids.options.values import most_similar

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

# The names that the Leadmetrics adapter uses for some options.
_ALIASES = {
    "prompt_template": "template",
    "instructions_file_path": "instructions",
    "timeout_sec": "timeout",
    "grace_sec": "grace",
}
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


class Problem(msgspec.Struct, frozen=True):
    """A problem with one field of a form: the field's name, and what is wrong with its value."""

    name: str
    message: str


def build_config(form: Mapping[str, object]) -> Options:
    """Build options from the values of a form. Raises one `OptionsError` with all problems.

    Each value can be text: a number, a switch such as `true`, a list with one item per line, or a
    mapping with `NAME=value` lines. Empty text means that the field is not set. Names can be in
    camelCase (`maxTurns` for `max_turns`). The names of options in the Leadmetrics adapter, such as
    `promptTemplate`, also work.

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
    """Return all problems with the values of a form; an empty tuple if the form is valid.

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
    """Return the values of a form by field name, and a list of (name, problem) pairs.

    The values are not converted or checked. A permission gets a name such as `permissions.shell`.
    These are problems: a name that is unknown, a name that is set twice with different values, and
    an invalid value of `yolo` or `permissions`.
    """
    flat: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for key, raw in _entries(form):
        name = _snake(key)
        if name == "yolo":
            name, raw, problem = "approval", *_approval_of(raw)
            if problem is not None:
                problems.append((key, problem))
                continue
        if name == "permissions":
            problems.append((key, f"is of type {type(raw).__name__}, not a table of permissions"))
        elif name not in _by_name():
            problems.append((key, no_such_field(name)))
        elif name in flat and raw is not NOT_GIVEN and flat[name] != raw:
            problems.append((key, "is set twice, with different values"))
        elif raw is not NOT_GIVEN:
            flat[name] = raw
    return flat, problems


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `values`, a dict with field names as keys, to keyword arguments for `make_options`.

    All `permissions.*` values become one `Permissions` argument.
    """
    arguments = {name: value for name, value in values.items() if not name.startswith("permissions.")}
    permissions = {name[12:]: value for name, value in values.items() if name.startswith("permissions.")}
    if permissions:
        arguments["permissions"] = Permissions(**permissions)
    return arguments


def read_value(field: Field, raw: Any, *, commas: bool = False) -> Any:
    """Convert the raw value of a field to the field's type. Empty text becomes `NOT_GIVEN`.

    A list can be given as text, with one item per line. With `commas`, its items can also be
    separated by commas.

    Raises ValueError if the field is a mapping and the value cannot be converted to a mapping. For
    all other fields, a value of the wrong type is returned unchanged, because `make_options`
    reports it.
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
    for key, raw in form.items():
        if isinstance(raw, Permissions):
            raw = msgspec.to_builtins(raw)
        if key == "permissions" and isinstance(raw, Mapping):
            for name, value in raw.items():
                yield f"permissions.{name}", value
        else:
            yield str(key), raw


def _snake(name: str) -> str:
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return _ALIASES.get(snake, snake)


def _approval_of(yolo: Any) -> tuple[Any, str | None]:
    """Convert a value of the switch `yolo` to a value of the option `approval`.

    Return the value of `approval` and a problem. The value is `yolo` if the switch is true,
    otherwise `NOT_GIVEN`. The problem is a text if the switch is neither true nor false, otherwise
    None.
    """
    word = yolo.strip().lower() if isinstance(yolo, str) else yolo
    if word is True or word in _TRUE:
        return "yolo", None
    if word in (False, None, "", *_FALSE):
        return NOT_GIVEN, None
    # Do not show the value: it may be a secret in the wrong field.
    return NOT_GIVEN, "is not true or false"


def no_such_field(name: str) -> str:
    """Return the error message for the unknown option `name`. If a known name is similar, the
    message suggests it."""
    ends = {known.rpartition(".")[2]: known for known in _by_name()}
    similar = most_similar(name, _by_name()) or ends.get(most_similar(name, ends) or "")
    return f"there is no such option; did you mean {similar}?" if similar else "there is no such option"


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
    pairs = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip():
            # Do not show the text: it may be a secret.
            raise ValueError("has a line that is not NAME=VALUE")
        pairs[name.strip()] = value
    return pairs


def _servers_of(text: str) -> Any:
    try:
        servers = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(servers, dict):
        raise ValueError("is not a JSON object that maps names to servers")
    return {name: _server(name, server) for name, server in servers.items()}


def _server(name: str, raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return raw
    known = {field.name: field for field in server_fields()}
    entry = {_snake(str(key)): value for key, value in raw.items()}
    unknown = [key for key in entry if key not in known]
    if unknown:
        raise ValueError(f"{name!r}: an MCP server has no field {', '.join(unknown)}; use {', '.join(known)}")
    values = {key: read_value(known[key], value) for key, value in entry.items()}
    return McpServer(**{key: value for key, value in values.items() if value is not NOT_GIVEN})
