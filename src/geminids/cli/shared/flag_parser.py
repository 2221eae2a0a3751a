"""Build the flags of `geminids run` and `geminids chat` from the fields of `Options`."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from geminids.config.mcp import servers_of
from geminids.options import CAPABILITIES
from geminids.options.flag_names import with_flags
from geminids.options.flags import GROUPS, Field, fields

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["FlagOption", "GroupedCommand", "field_flags", "own_flag", "parse_flags"]

Command = TypeVar("Command", bound=Callable[..., Any])

_PERMISSION_FLAGS = {
    "allow": "Capabilities to allow: " + ", ".join(CAPABILITIES) + ".",
    "ask": "Capabilities to ask you about; if nobody can answer, they are denied.",
    "deny": "Capabilities to deny.",
}
_LAST_CAPABILITY = "permissions.skills"  # the help lists --allow, --ask and --deny after this field
_COLUMN = 26


class FlagOption(click.Option):
    """A flag that `--help` lists in the section `group`. Its `--no-...` form is not listed.

    A shell completes its value with `values`, or with files or folders if the metavar names them.
    """

    def __init__(self, *names: Any, group: str = "", values: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.group = group
        self.values = values

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # imported late: only a completion needs it

        names = [CompletionItem(value) for value in self.values if value.startswith(incomplete)]
        shown = self.metavar or ""
        kind = "dir" if "DIR" in shown else "file" if "FILE" in shown or "PATH" in shown else None
        if names or kind is None:
            return names or super().shell_complete(ctx, incomplete)
        return [CompletionItem(incomplete, type=kind)]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return (record[0].split(" / ")[0], record[1]) if record else None


class GroupedCommand(click.Command):
    """A command whose help lists the flags in sections, one for each group.

    The flags in `common` are listed first, in this order, in a section of their own. `notes` are
    paragraphs that follow that section.
    """

    def __init__(
        self, *args: Any, common: Sequence[str] = (), notes: Sequence[str] = (), **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self._common = common
        self._notes = notes

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:  # click has no class for it
                raise
            advice = f'Put the prompt in quotes: geminids {self.name} "..."'
            raise click.UsageError(f"{error.message}. {advice}", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        common: dict[str, list[tuple[str, str]]] = {flag: [] for flag in self._common}
        by_group: dict[str, list[tuple[str, str]]] = {group: [] for group in (*GROUPS, "Output", "Other")}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                is_common = common.get(max(param.opts, key=len))
                (by_group[getattr(param, "group", "Other")] if is_common is None else is_common).append(
                    record
                )
        self._write(
            formatter, "Common options", [record for records in common.values() for record in records]
        )
        for note in self._notes:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(note)
        for group, records in by_group.items():
            self._write(formatter, group, records)

    def _write(self, formatter: click.HelpFormatter, title: str, records: Sequence[tuple[str, str]]) -> None:
        if records:
            with formatter.section(title):
                # Pad the names to a fixed width, because click aligns each section separately.
                formatter.write_dl(
                    [(f"{names:<{_COLUMN}}", text) for names, text in records], col_max=_COLUMN
                )


own_flag = functools.partial(click.option, cls=FlagOption, group="Output")
"""A decorator like `click.option`, for a flag that does not come from a field of `Options`."""
_CONTINUE = own_flag(
    "--continue",
    "continue_latest",
    is_flag=True,
    group="Folder and session",
    help="Continue the newest session of the folder; start a new one if there is none.",
)
_NO_CONFIG = own_flag("--no-config", is_flag=True, help="Ignore geminids.toml and your config.toml.")


def field_flags(command: Command) -> Command:
    """Add flags to a click command: those for the fields of `Options`, and also `--continue` and
    `--no-config`."""
    for option in reversed([*_options(), _CONTINUE, _NO_CONFIG]):
        option(command)
    return command


def _options() -> list[Callable[[Any], Any]]:
    options = []
    for field in fields():
        if field.flag is not None:
            options.append(_option(field))
        if field.name == _LAST_CAPABILITY:
            options += [
                click.option(
                    f"--{decision}",
                    f"permission_{decision}",
                    cls=FlagOption,
                    group=field.group,
                    multiple=True,
                    metavar="CAPABILITY...",
                    values=CAPABILITIES,
                    help=text,
                )
                for decision, text in _PERMISSION_FLAGS.items()
            ]
    return options


def _option(field: Field) -> Callable[[Any], Any]:
    assert field.flag is not None
    names = [field.flag, *([field.short] if field.short else ())]
    attributes: dict[str, Any] = {
        "help": _help(field),
        "metavar": field.placeholder,
        "values": field.choices,
    }
    if field.kind in ("list", "mapping"):
        attributes |= {"multiple": True, "metavar": f"{field.placeholder}..."}
    if field.kind == "flag":
        names = [f"{field.flag}/--no-{field.flag[2:]}"]
        attributes = {"help": _help(field), "default": None, "is_flag": True}
    # Do not use click's types: `load_options` checks the values of flags and files, and reports all
    # invalid ones in one error.
    return click.option(*names, _param_name(field), cls=FlagOption, group=field.group, **attributes)


def _help(field: Field) -> str:
    text = with_flags(field.description).replace("`", "")
    if field.choices and not all(choice in text for choice in field.choices):
        text = f"{text}  [{'|'.join(field.choices)}]"
    if field.default not in (None, (), False, ".") and field.default != {} and field.name != "approval":
        default = f"{field.default:g}" if isinstance(field.default, float) else field.default
        text = f"{text}  [default: {default}]"
    return text


def _param_name(field: Field) -> str:
    return field.name.replace(".", "__")


def parse_flags(params: Mapping[str, Any], *, continue_latest: bool = False) -> dict[str, Any]:
    """Return the values of the flags that were set, as a dict whose keys are option names.

    `params` are the values from click. Raises `click.UsageError` if a value cannot be parsed.
    """
    values: dict[str, Any] = {}
    for field in fields():
        value = params.get(_param_name(field))
        if value is not None and value != ():
            values[field.name] = _parse_value(field, value)
    if continue_latest:
        if "resume" in values:
            raise click.UsageError("--continue and --resume cannot be used together.")
        values["resume"] = "latest"
    return values | _parse_permissions(params)


def _parse_value(field: Field, value: Any) -> Any:
    if field.name == "mcp_servers":
        return _parse_servers(value)
    if field.kind == "mapping":
        return _parse_pairs(str(field.flag), value)
    if field.kind == "list":
        return [part for text in value for part in (text.split(",") if field.commas else [text])]
    if field.name in ("template", "schema") and value.startswith("@"):
        return _read_file(value[1:], field.flag or "")
    if field.name == "schema" and not _may_be_json(value):
        raise click.UsageError(
            f"--schema: {value[:200]!r} is not a JSON Schema. To read the schema from a file, put @ before"
            f" its name: --schema @{shlex.quote(value[:200])}"
        )
    return value


def _may_be_json(text: str) -> bool:
    """Whether a value is meant as JSON, not as the name of a file."""
    return text.lstrip().startswith(("{", "[", '"')) or text.strip() in ("true", "false", "null", "none", "")


def _parse_pairs(flag: str, pairs: Sequence[str]) -> dict[str, str]:
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            # Do not show the text: it may be a secret.
            raise click.UsageError(f"{flag}: a value is not in the form NAME=VALUE")
        values[name] = value
    return values


def _parse_servers(texts: Sequence[str]) -> dict[str, Any]:
    servers: dict[str, Any] = {}
    for text in texts:
        try:
            servers |= servers_of(text)
        except ValueError as error:
            raise click.UsageError(f"--mcp: {error}") from None
    return servers


def _read_file(path: str, flag: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        raise click.UsageError(f"{flag}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{flag}: {path} is not UTF-8") from None


def _parse_permissions(params: Mapping[str, Any]) -> dict[str, str]:
    decisions: dict[str, str] = {}
    for decision in _PERMISSION_FLAGS:
        for value in params.get(f"permission_{decision}") or ():
            for capability in value.replace("-", "_").split(","):
                name = f"permissions.{capability.strip()}"
                if capability.strip() not in CAPABILITIES:
                    known = ", ".join(CAPABILITIES)
                    raise click.UsageError(f"--{decision}: {capability!r} is not one of {known}")
                if decisions.setdefault(name, decision) != decision:
                    raise click.UsageError(
                        f"--{decisions[name]} and --{decision} cannot both name {capability.strip()}"
                    )
    return decisions
