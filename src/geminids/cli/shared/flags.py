"""The flags of `geminids run`, made from the fields of the options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from geminids.config.fields import GROUPS, Field, fields
from geminids.options import CAPABILITIES

__all__ = ["FlagOption", "GroupedCommand", "field_flags", "given_by_flags", "own_flag"]

Command = TypeVar("Command", bound=Callable[..., Any])

_POWERS = {
    "allow": "Capabilities that are allowed: " + ", ".join(CAPABILITIES) + ".",
    "ask": "Capabilities that are asked for (a deny where nobody is there to ask).",
    "deny": "Capabilities that are denied.",
}
_AFTER = "permissions.skills"  # where --allow, --ask and --deny stand in the list
_COLUMN = 26


class FlagOption(click.Option):
    """An option that knows its group; `--no-...` forms are not shown."""

    def __init__(self, *words: Any, group: str = "", **more: Any) -> None:
        super().__init__(*words, **more)
        self.group = group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return (record[0].split(" / ")[0], record[1]) if record else None


class GroupedCommand(click.Command):
    """A command whose options are shown by group, in one pair of columns."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        by_group: dict[str, list[tuple[str, str]]] = {group: [] for group in (*GROUPS, "Output", "Other")}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                by_group[getattr(param, "group", "Other")].append(record)
        for group, records in by_group.items():
            with formatter.section(group):
                # As wide as the widest of them all that is not odd: click aligns each list by itself.
                formatter.write_dl(
                    [(f"{words:<{_COLUMN}}", text) for words, text in records], col_max=_COLUMN
                )


own_flag = functools.partial(click.option, cls=FlagOption, group="Output")
"""A flag of a command that is no field of `Options`."""
_CONTINUE = own_flag(
    "--continue",
    "go_on",
    is_flag=True,
    group="Folder and session",
    help="Go on with the newest session of the folder, or begin one where there is none.",
)
_NO_CONFIG = own_flag(
    "--no-config", is_flag=True, help="Read neither geminids.toml nor the user's config.toml."
)


def field_flags(command: Command) -> Command:
    """Give a command a flag for each field that has one, `--continue` and `--no-config`."""
    for option in reversed([*_options(), _CONTINUE, _NO_CONFIG]):
        option(command)
    return command


def _options() -> list[Callable[[Any], Any]]:
    made = []
    for field in fields():
        if field.flag is not None:
            made.append(_option(field))
        if field.name == _AFTER:
            made += [
                click.option(
                    f"--{power}",
                    f"power_{power}",
                    cls=FlagOption,
                    group=field.group,
                    multiple=True,
                    metavar="CAPABILITY...",
                    help=text,
                )
                for power, text in _POWERS.items()
            ]
    return made


def _option(field: Field) -> Callable[[Any], Any]:
    assert field.flag is not None
    words = [field.flag, *([field.short] if field.short else ())]
    more: dict[str, Any] = {"help": _help(field), "metavar": field.placeholder}
    if field.kind in ("list", "mapping"):
        more |= {"multiple": True, "metavar": f"{field.placeholder}..."}
    if field.kind == "flag":
        words = [f"{field.flag}/--no-{field.flag[2:]}"]
        more = {"help": _help(field), "default": None, "is_flag": True}
    # Texts, not click's types: all problems are told at once, in the same words as everywhere.
    return click.option(*words, _param(field), cls=FlagOption, group=field.group, **more)


def _help(field: Field) -> str:
    text = field.description.replace("`", "")
    if field.choices and not all(choice in text for choice in field.choices):
        text = f"{text}  [{'|'.join(field.choices)}]"
    if field.default not in (None, (), False, ".") and field.default != {} and field.name != "approval":
        default = f"{field.default:g}" if isinstance(field.default, float) else field.default
        text = f"{text}  [default: {default}]"
    return text


def _param(field: Field) -> str:
    return field.name.replace(".", "__")


def given_by_flags(params: Mapping[str, Any], *, go_on: bool = False) -> dict[str, Any]:
    """What the flags said, by field; raises `click.UsageError` for what no field could tell."""
    given: dict[str, Any] = {}
    for field in fields():
        value = params.get(_param(field))
        if value is not None and value != ():
            given[field.name] = _read(field, value)
    if go_on:
        if "resume" in given:
            raise click.UsageError("--continue and --resume cannot both be given: which session is meant?")
        given["resume"] = "latest"
    return given | _powers(params)


def _read(field: Field, value: Any) -> Any:
    if field.name == "mcp_servers":
        return _servers(value)
    if field.kind == "mapping":
        return _pairs(str(field.flag), value)
    if field.kind == "list":
        return [part for one in value for part in (one.split(",") if field.commas else [one])]
    if field.name in ("template", "schema") and value.startswith("@"):
        return _text_of(value[1:], field.flag or "")
    return value


def _pairs(flag: str, pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            # The text is not shown: it may be a secret.
            raise click.UsageError(f"{flag} takes NAME=VALUE")
        found[name] = value
    return found


def _servers(texts: Sequence[str]) -> dict[str, Any]:
    from geminids.config.mcp import servers_of  # imported late: few runs have one

    found: dict[str, Any] = {}
    for text in texts:
        try:
            found |= servers_of(text)
        except ValueError as error:
            raise click.UsageError(f"--mcp: {error}") from None
    return found


def _text_of(path: str, flag: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        raise click.UsageError(f"{flag}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{flag}: {path} is not UTF-8") from None


def _powers(params: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for power in _POWERS:
        for one in params.get(f"power_{power}") or ():
            for capability in one.replace("-", "_").split(","):
                name = f"permissions.{capability.strip()}"
                if capability.strip() not in CAPABILITIES:
                    known = ", ".join(CAPABILITIES)
                    raise click.UsageError(f"--{power}: {capability!r} is not one of {known}")
                if found.setdefault(name, power) != power:
                    raise click.UsageError(
                        f"{capability.strip()} cannot have both --{found[name]} and --{power}"
                    )
    return found
