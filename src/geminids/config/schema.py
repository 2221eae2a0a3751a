"""Export the schema of the options as JSON Schema, as fields of a form, and as a reference page."""

from __future__ import annotations

from typing import Any

import msgspec

from geminids.options import Options
from geminids.options.flags import GROUPS, Field, Kind, fields, server_fields

__all__ = ["ConfigField", "config_fields", "json_schema", "reference_page"]


class ConfigField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One option as a field of a form.

    If `kind` is `choice`, only the values in `choices` are valid. If `kind` is `text`, `choices`
    are suggestions. `min` and `max` are the smallest and the largest valid number. If
    `exclusive_min` is true, `min` itself is not valid: a number must be larger. If `secret` is
    true, the form must not show the value. For a mapping, `fields` are the fields of each entry.
    """

    name: str
    label: str
    kind: Kind
    group: str
    description: str
    default: Any = None
    choices: tuple[str, ...] = ()
    required: bool = False
    min: float | None = None
    max: float | None = None
    exclusive_min: bool = False
    paths: bool = False
    secret: bool = False
    fields: tuple[ConfigField, ...] = ()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `Options`.

    >>> json_schema()["$defs"]["Options"]["properties"]["max_turns"]["anyOf"][0]["maximum"]
    100000
    """
    schema = msgspec.json.schema(Options)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "geminids options", **schema}


def config_fields() -> tuple[ConfigField, ...]:
    """Return all options as fields of a form, in the order in which a form should show them.

    >>> [(field.name, field.kind) for field in config_fields()][:2]
    [('model', 'text'), ('effort', 'text')]
    """
    servers = tuple(_form_field(field) for field in server_fields())
    return tuple(_form_field(field, servers if field.name == "mcp_servers" else ()) for field in fields())


def _form_field(field: Field, inner: tuple[ConfigField, ...] = ()) -> ConfigField:
    low = field.above if field.low is None else field.low
    return ConfigField(
        name=field.name,
        label=field.label,
        kind=field.kind,
        group=field.group,
        description=field.description,
        default=field.default,
        choices=field.choices,
        min=low,
        max=field.high,
        exclusive_min=field.low is None and field.above is not None,
        paths=field.paths,
        secret=field.secret,
        fields=inner,
    )


_REACH = {
    "free": "yes",
    "inside": "only to a path in the project",
    "narrows": "only to allow the agent less",
    "power": "no",
}

_HEAD = """\
# Options of a run

`make reference` generates this page from the schema in the code.

You can set each option in Python (`Options(model="flash")`, or as a keyword argument of `ask`), on the command line,
in an environment variable, and in a [configuration file](config.md) under `[gemini]`. *Project* says whether the
`geminids.toml` of a project that you have not trusted may set it. Switches also have a `--no-` form. On the command
line, in variables and in files, `none` means "no limit". Lists in variables are separated by commas.
"""


def reference_page() -> str:
    """Return the text of docs/reference/options.md, the reference page of all options."""
    parts = [_HEAD]
    for group in GROUPS:
        parts.append(f"## {group}\n")
        parts += [_entry(field) for field in fields() if field.group == group]
    parts.append("## An MCP server\n\nThe fields of an entry of `mcp_servers`.\n")
    parts += [f"- `{field.name}` ({_type(field)}): {field.description}" for field in server_fields()]
    return "\n".join(parts) + "\n"


def _entry(field: Field) -> str:
    default = "none" if field.default in (None, ()) or field.default == {} else f"`{_plain(field.default)}`"
    rows = [
        ("flag", _flag(field)),
        ("variable", f"`{field.env}`" if field.env else "none"),
        ("type", _type(field)),
        ("default", default),
        ("project", _REACH[field.reach]),
    ]
    table = "\n".join(f"| {name} | {text} |" for name, text in rows)
    return f"### {field.name}\n\n{field.description}\n\n| | |\n|---|---|\n{table}\n"


def _flag(field: Field) -> str:
    if field.flag is not None:
        words = ", ".join(f"`{word}`" for word in (field.flag, field.short) if word)
        return words if field.kind == "flag" else f"{words} `{field.placeholder}`".replace("|", "\\|")
    if field.name.startswith("permissions."):
        capability = field.name.rpartition(".")[2]
        return ", ".join(f"`--{power} {capability}`" for power in field.choices)
    return "none"


def _type(field: Field) -> str:
    if field.kind == "choice" or field.name == "effort":
        words = ", ".join(f"`{choice}`" for choice in field.choices)
        return f"{words}, or a whole number" if field.name == "effort" else words
    if field.kind == "number":
        return f"{'whole number' if field.whole else 'number'}{_limits(field)}"
    named = {"flag": "true or false", "list": "list of texts", "mapping": "table", "path": "path"}
    return "list of paths" if field.kind == "list" and field.paths else named.get(field.kind, field.kind)


def _limits(field: Field) -> str:
    if field.above is not None:
        return f" above {field.above}"
    if field.high is not None:
        return f" from {field.low} to {field.high}"
    return f", {field.low} or more" if field.low is not None else ""


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
