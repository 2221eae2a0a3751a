"""`geminids run`: one run, shown in the chosen format."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geminids.cli.shared.flags import GroupedCommand, field_flags, given_by_flags, own_flag
from geminids.cli.shared.result import exit_code, say_why
from geminids.cli.shared.signals import signals_noted
from geminids.config.loader import load_options
from geminids.dialects.dialect import DIALECTS, Dialect, dialect
from geminids.options import Options

if TYPE_CHECKING:
    from geminids.cli.shared.ask_permission import Asker
    from geminids.run.run import Run
    from geminids.views.plain import DialectOutput
    from geminids.warm.owner.owner_run import RemoteRun

__all__ = ["check_manner", "run"]

_OUTPUTS = ("pretty", "text", "events", *sorted(DIALECTS))


@click.command(cls=GroupedCommand, context_settings={"max_content_width": 110})
@click.argument("prompt", required=False)
@field_flags
@own_flag(
    "--output", "-o", type=click.Choice(_OUTPUTS), help="[default: pretty on a terminal, text in a pipe]"
)
@own_flag("--partial", is_flag=True, help="With -o claude: pieces of messages too, as they come.")
@own_flag(
    "--strict", is_flag=True, help="With -o record: exit with 3 where a field of the record is not known."
)
@own_flag("--record-dir", metavar="DIR", help="With -o record: keep its log and its trajectory there.")
@own_flag("--save-events", metavar="FILE", help="Write all events to FILE, one JSON object a line.")
@own_flag(
    "--warm",
    is_flag=True,
    group="CLI and environment",
    envvar="GEMINIDS_WARM",
    help="Let a CLI that is running already answer; the first such run starts it. See geminids warm.",
)
@own_flag(
    "--warm-for",
    type=click.FloatRange(min=0, max=10**6),
    metavar="SECONDS",
    default=300.0,
    group="CLI and environment",
    envvar="GEMINIDS_WARM_FOR",
    help="How long it waits for the next run.  [default: 300]",
)
@own_flag("--dry-run", is_flag=True, help="Show what would be run, and run nothing.")
def run(
    prompt: str | None,
    output: str | None,
    partial: bool,
    strict: bool,
    record_dir: str | None,
    save_events: str | None,
    warm: bool,
    warm_for: float,
    dry_run: bool,
    no_config: bool,
    go_on: bool,
    **params: Any,
) -> int:
    """Run the agent once. PROMPT is text, or - to read it from stdin; with --template it may be left out.

    A flag whose value ends in ... can be repeated; tools, servers and capabilities can have commas between them.
    A switch has a --no- form. What no flag says comes from the variable (GEMINIDS_MODEL), the project's
    geminids.toml, your own config.toml, or is the default: see geminids config list.

    Exit codes: 0 success, 1 failed, 2 bad usage, 3 --strict failed, 4 max turns or over budget, 124 timed out,
    127 no CLI, 130 interrupted.
    """
    flags = given_by_flags(params, go_on=go_on)
    check_manner(output, partial=partial, strict=strict, record_dir=record_dir)
    loaded = load_options(flags=flags, config=not no_config)
    options = loaded.options
    for warning in loaded.warnings:
        click.echo(f"geminids: {warning}", err=True)
    text = _prompt(prompt, options)
    if dry_run:
        from geminids.cli.shared.dry_run import show

        return show(text, options, as_json=output == "events")
    if output is None:
        output = "pretty" if sys.stdout and sys.stdout.isatty() else "text"
    asker = _asker(options, output)
    files = _record_files(record_dir)
    agent = _agent(text, options, warm_for if warm else None, asker)
    with _saving(save_events) as sink, signals_noted():
        # The CLI takes most of a second to load: it starts before we import what the rest needs.
        agent.launch()
        if options.gateway != "off":
            from geminids.process.hardening import protect_command

            protect_command()
        from geminids.cli.shared.follow import follow

        spoken = _spoken(output, partial, files)
        result = follow(agent, output, sink, asker, spoken)
    if output == "text":
        say_why(result)
    if strict and spoken is not None:
        from geminids.cli.shared.record_files import complain

        return exit_code(result) or complain(spoken.last, trajectory=record_dir is not None)
    return exit_code(result)


def _spoken(output: str, partial: bool, files: Dialect | None) -> DialectOutput | None:
    if output not in DIALECTS:
        return None
    from geminids.views.plain import DialectOutput

    return DialectOutput(files or dialect(output, partial=partial))


def _record_files(folder: str | None) -> Dialect | None:
    if folder is None:
        return None
    from geminids.cli.shared.record_files import RecordFiles

    return RecordFiles(folder)


def check_manner(
    output: str | None, *, partial: bool, strict: bool, record_dir: str | None = None, flag: str = "-o"
) -> None:
    """Raise for a manner of speaking that the format does not have."""
    if partial and output != "claude":
        raise click.UsageError(f"--partial goes with {flag} claude only.")
    if strict and output != "record":
        raise click.UsageError(f"--strict goes with {flag} record only.")
    if record_dir is not None and output != "record":
        raise click.UsageError(f"--record-dir goes with {flag} record only.")


def _asker(options: Options, output: str) -> Asker | None:
    if output != "pretty":
        return None
    from geminids.cli.shared.ask_permission import asker_for  # imported late: in a pipe there is nobody

    return asker_for(options, output)


def _agent(prompt: str, options: Options, warm_for: float | None, asker: Asker | None) -> Run | RemoteRun:
    """The run, by whoever is there to run it."""
    if warm_for is not None:
        from geminids.warm.owner.owner_run import RemoteRun

        return RemoteRun(prompt, options, keep=warm_for, on_permission=asker)
    from geminids.client import open_run

    return open_run(prompt, options, on_permission=asker)


def _prompt(prompt: str | None, options: Options) -> str:
    if prompt is None and (sys.stdin is None or sys.stdin.isatty() or options.template is not None):
        if options.template is not None:
            return ""
        raise click.UsageError('No prompt. Try: geminids run "What does this folder hold?"')
    if prompt is None or prompt == "-":
        if sys.stdin is None:
            raise click.UsageError("stdin is closed: there is no prompt to read.")
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return prompt


def _saving(path: str | None) -> Any:
    from contextlib import nullcontext

    if path is None:
        return nullcontext(None)
    import os

    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", buffering=0)
    except OSError as error:
        raise click.UsageError(f"--save-events: {Path(path)} cannot be written: {error.strerror}") from None
