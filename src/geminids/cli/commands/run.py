"""`geminids run`: start one run and print it in the chosen format."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from geminids.cli.shared.flag_parser import GroupedCommand, field_flags, own_flag, parse_flags
from geminids.cli.shared.result import exit_code, print_failure
from geminids.cli.shared.signals import collect_signals
from geminids.cli.shared.stdin import Reading, check_encoding, read_prompt, with_piped_input
from geminids.config.loader import load_options
from geminids.dialects.dialect import DIALECTS, Dialect, dialect
from geminids.options import CAPABILITIES, Options
from geminids.process.hardening import protect_command
from geminids.views.plain import DialectOutput

if TYPE_CHECKING:
    from geminids.adapters.cakit.files import RecordFiles
    from geminids.cli.shared.ask_permission import Asker
    from geminids.run.run import Run
    from geminids.warm.owner.run import RemoteRun

__all__ = ["check_format_flags", "run"]

_OUTPUTS = ("pretty", "text", "events", *sorted(DIALECTS))


# The flags that `--help` lists first.
_COMMON = (
    "--model",
    "--cwd",
    "--file",
    "--resume",
    "--approval",
    "--allow",
    "--max-budget",
    "--timeout",
    "--offline",
    "--output",
)
_NOTES = (
    "PROMPT is text, or - to read it from stdin; it is optional with --template. Text that is piped in is put in "
    'front of PROMPT: cat log.txt | geminids run "Explain this log"',
    "A flag whose value ends in ... can be repeated. Tools, servers and capabilities can also be separated by "
    "commas. Each switch has a --no- form. Without a flag, a value comes from an environment variable "
    "(GEMINIDS_MODEL), the project's geminids.toml, your config.toml, or the default: see geminids config list.",
)


@click.command(
    cls=GroupedCommand,
    common=_COMMON,
    notes=_NOTES,
    epilog="Exit codes: 0 success, 1 failed, 2 bad usage, 3 --strict failed, 4 max turns or over budget, "
    "124 timed out, 127 no CLI, 130 interrupted.",
    context_settings={"max_content_width": 110},
)
@click.argument("prompt", required=False)
@field_flags
@own_flag(
    "--output",
    "-o",
    type=click.Choice(_OUTPUTS),
    help="Output format.  [default: pretty on a terminal, text in a pipe]",
)
@own_flag("--partial", is_flag=True, help="With -o claude: also print partial messages as they arrive.")
@own_flag("--strict", is_flag=True, help="With -o record: exit with 3 if a critical field is missing.")
@own_flag("--record-dir", metavar="DIR", help="With -o record: keep the files of the record below DIR.")
@own_flag("--save-events", metavar="FILE", help="Write all events to FILE, one JSON object per line.")
@own_flag(
    "--warm",
    is_flag=True,
    group="CLI and environment",
    envvar="GEMINIDS_WARM",
    help="Use a CLI that is already running; the first such run starts it. See geminids warm.",
)
@own_flag(
    "--warm-for",
    type=click.FloatRange(min=0, max=10**6),
    metavar="SECONDS",
    default=300.0,
    group="CLI and environment",
    envvar="GEMINIDS_WARM_FOR",
    help="How long an idle CLI waits for the next run.  [default: 300]",
)
@own_flag(
    "--no-stdin",
    is_flag=True,
    group="Prompt",
    envvar="GEMINIDS_NO_STDIN",
    help="Do not read stdin, for example in a loop with while read, whose next lines are on stdin.",
)
@own_flag(
    "--input-encoding",
    metavar="NAME",
    default="utf-8",
    group="Prompt",
    help="The encoding of stdin.  [default: utf-8]",
)
@own_flag("--dry-run", is_flag=True, help="Show what the run would do, and start nothing.")
def run(
    prompt: str | None,
    output: str | None,
    partial: bool,
    strict: bool,
    record_dir: str | None,
    save_events: str | None,
    warm: bool,
    warm_for: float,
    no_stdin: bool,
    input_encoding: str,
    dry_run: bool,
    no_config: bool,
    continue_latest: bool,
    **params: Any,
) -> int:
    """Run the agent once.

    \b
    Examples:
      geminids run --offline "What is in this folder?"     (a script answers: no key needed)
      geminids run --allow-command pytest "Run pytest and explain the failures"
      geminids run --resume latest "Now fix them" --approval auto_edit
    """
    flags = parse_flags(params, continue_latest=continue_latest)
    check_format_flags(output, partial=partial, strict=strict, record_dir=record_dir)
    check_encoding(input_encoding)
    loaded = load_options(flags=flags, config=not no_config)
    options = loaded.options
    for warning in loaded.warnings:
        click.echo(f"geminids: {warning}", err=True)
    text = _prompt(prompt, options, None if no_stdin else input_encoding)
    if dry_run:
        from geminids.cli.shared.dry_run import show

        return show(text, options, as_json=output == "events")
    if output is None:
        output = "pretty" if sys.stdout and sys.stdout.isatty() else "text"
    asker = _asker(options, output)
    files = None
    if output == "record":
        from geminids.cli.shared.record_files import new_record_files

        files = new_record_files(record_dir)
        if options.telemetry is None:
            options = replace(options, telemetry=str(files.telemetry))
        if warm:
            click.echo(
                "geminids: --warm has no effect, because -o record needs the CLI's own output, "
                "which a warm process does not pass on",
                err=True,
            )
    handle = _create_run(text, options, warm_for if warm else None, asker, files)
    with _open_events_file(save_events) as sink, collect_signals():
        # The CLI needs almost a second to load: start it before the other modules are imported.
        handle.launch()
        if options.gateway != "off":
            protect_command()
        from geminids.cli.shared.follow import follow

        printer = _dialect_printer(output, partial, _record_writer(handle, files))
        result = follow(handle, output, sink, asker, printer)
    if output == "text":
        print_failure(result)
    if strict and printer is not None:
        from geminids.cli.shared.record_files import report_missing_fields

        return exit_code(result) or report_missing_fields(printer.last)
    return exit_code(result)


def _dialect_printer(output: str, partial: bool, writer: Dialect | None) -> DialectOutput | None:
    if output not in DIALECTS:
        return None
    return DialectOutput(writer or dialect(output, partial=partial))


def _record_writer(handle: Run | RemoteRun, files: RecordFiles | None) -> Dialect | None:
    if files is None:
        return None
    from geminids.adapters.cakit.files import RecordWriter
    from geminids.run.run import Run

    assert isinstance(handle, Run), "only a run in this process can have a record"
    return RecordWriter(files, handle)


def check_format_flags(
    output: str | None, *, partial: bool, strict: bool, record_dir: str | None = None, flag: str = "-o"
) -> None:
    """Raise `click.UsageError` if a flag is set that does not work with the format `output`.

    `flag` is the flag that selects the format. The error message contains its name.
    """
    if partial and output != "claude":
        raise click.UsageError(f"--partial works only together with `{flag} claude`.")
    if strict and output != "record":
        raise click.UsageError(f"--strict works only together with `{flag} record`.")
    if record_dir is not None and output != "record":
        raise click.UsageError(f"--record-dir works only together with `{flag} record`.")


def _asker(options: Options, output: str) -> Asker | None:
    """Return an object that asks the user for permissions; None if the user cannot be asked.

    The user is asked if a permission is set to `ask` and the run is shown in a terminal.
    """
    asks = any(getattr(options.permissions, name) == "ask" for name in CAPABILITIES)
    is_terminal = all(file is not None and file.isatty() for file in (sys.stdin, sys.stdout))
    if not asks or output != "pretty" or not is_terminal:
        return None
    from geminids.cli.shared.ask_permission import Asker  # imported late: it loads rich

    return Asker()


def _create_run(
    prompt: str, options: Options, warm_for: float | None, asker: Asker | None, files: RecordFiles | None
) -> Run | RemoteRun:
    """Create the run: in the warm process if `warm_for` is set and `files` is None, otherwise in
    this process.

    The warm process keeps CLIs ready for the next run. `warm_for` is how many seconds an idle CLI
    waits for the next run. `files` stores the output of the CLI. A run with `files` cannot use the
    warm process, because the warm process does not pass on the output of the CLI.
    """
    if files is not None:
        from geminids.client import open_run

        return open_run(prompt, options, on_line=files.add_stdout, on_stderr=files.add_stderr)
    if warm_for is not None:
        from geminids.warm.owner.run import RemoteRun

        return RemoteRun(prompt, options, keep=warm_for, on_permission=asker)
    from geminids.client import open_run

    return open_run(prompt, options, on_permission=asker)


def _prompt(prompt: str | None, options: Options, encoding: str | None) -> str:
    """Return the prompt with the text that is piped in. `encoding` is None if stdin is not read."""
    is_from_stdin = prompt == "-" or (prompt is None and options.template is None)
    if encoding is None:
        if is_from_stdin:
            raise click.UsageError("--no-stdin: pass the prompt as an argument.")
        return prompt or ""
    reading = Reading(encoding, options.timeout, options.idle_timeout)
    if not is_from_stdin:
        return with_piped_input(prompt or "", reading, literal=options.literal)
    if prompt is None and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError('No prompt. Try: geminids run "What is in this folder?"')
    return read_prompt(reading)


def _open_events_file(path: str | None) -> Any:
    if path is None:
        return nullcontext(None)
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", buffering=0)
    except OSError as error:
        raise click.UsageError(f"--save-events: cannot write {Path(path)}: {error.strerror}") from None
